"""Feature labels: what they say of sharing follows what is offered now."""

from dataclasses import replace

from divvy.agent.labels import feature_labels
from tests.agent.devices import gpu, replicas, snapshot, whole


def test_shares_that_are_offered_no_more_say_nothing() -> None:
    gone = replace(replicas(1, 4), devices=())
    labels = feature_labels(snapshot(gpu(0)), [whole(1), gone], None)
    assert labels["nvidia.com/gpu.replicas"] == "1"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "none"


def test_shares_that_are_offered_are_counted() -> None:
    labels = feature_labels(snapshot(gpu(0)), [replicas(1, 4)], None)
    assert labels["nvidia.com/gpu.replicas"] == "4"
    assert labels["nvidia.com/gpu.sharing-strategy"] == "time-slicing"
