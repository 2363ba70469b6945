"""The labels of a node: those that follow from its plan, and none that is stale."""

from typing import Any

import pytest

from conformance.observe.feature_labels import (
    expected_labels,
    judge_labels,
    versions_are_advertised,
)
from conformance.promise import NodePromise
from tests.conformance.promised_nodes import live, promised

DRIVER = "550.163.01"


def node(profile: Any, model: str = "T4", gpus: int = 1) -> NodePromise:
    hardware = {"model": model, "gpus": gpus, "count": 1}
    value = {"profiles": {"x": profile}, "pools": {"p": {"hardware": hardware, "profile": "x"}}}
    (promise,) = promised(value, live("n"))
    return promise


def labels(promise: NodePromise, **more: str) -> dict[str, str]:
    own = expected_labels(promise, DRIVER) | {k.replace("__", "."): v for k, v in more.items()}
    return {f"nvidia.com/{name}": text for name, text in own.items()}


def judged(promise: NodePromise, own: dict[str, str]) -> str:
    expected, actual = judge_labels(promise, own, DRIVER)
    return "" if expected == actual else actual


@pytest.mark.parametrize(
    ("driver", "cuda", "holds"),
    [("550.163.01", "12.4", True), ("580.95", "12.4", False), ("550.163.01", None, False)],
)
def test_compares_versions_with_those_in_a_pod(driver: str, cuda: str | None, holds: bool) -> None:
    table = "| NVIDIA-SMI 550.163.01   Driver Version: 550.163.01   CUDA Version: 12.4     |"
    own = {"nvidia.com/cuda.driver-version.full": driver}
    own |= {} if cuda is None else {"nvidia.com/cuda.runtime-version.full": cuda}
    expected, actual = versions_are_advertised(own, table)
    assert expected == "labels say driver 550.163.01, CUDA 12.4"
    assert actual == f"labels say driver {driver}, CUDA {cuda or 'unknown'}"
    assert (expected == actual) == holds
    for labelled in (own, {}):
        expected, actual = versions_are_advertised(labelled, "")
        assert expected != actual == "a pod finds no version of driver and CUDA"


def test_expects_no_replicas_on_a_node_with_all_gpus_partitioned() -> None:
    """GPU Feature Discovery writes 0 there, and so does the agent."""
    promise = node([{"devices": "all", "mig": {"3g.20gb": 2}}], "A100-SXM4-40GB")
    wanted = expected_labels(promise, DRIVER)
    assert wanted["gpu.replicas"] == "0"
    assert wanted["mig-3g.20gb.count"] == "2"


def test_accepts_labels_of_the_agent_beyond_the_plan() -> None:
    promise = node({"timeSlicing": {"replicas": 4}})
    own = labels(promise, cuda__runtime_version__full="12.4")
    assert judged(promise, {**own, "nvidia.com/gpu.machine": "x", "other/label": "y"}) == ""
    assert judged(promise, {**own, "nvidia.com/gpu.product": "Tesla-T4-SHARED"}) == ""


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cuda.driver-version.major", "999"),
        ("gpu.family", "volta"),
        ("gpu.replicas", "7"),
        ("mig-7g.40gb.count", "1"),
        ("gpu.multiprocessors", "14"),
        ("mig.strategy", "mixed"),
    ],
)
def test_names_a_label_that_is_wrong_or_stale(name: str, text: str) -> None:
    promise = node({})
    assert judged(promise, labels(promise)) == ""
    assert f"{name}={text}" in judged(promise, {**labels(promise), f"nvidia.com/{name}": text})


def test_expects_mig_devices_named_as_gpus_to_be_described_as_such() -> None:
    profile = {"mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}}
    promise = node(profile, "A100-SXM4-40GB")
    wanted = expected_labels(promise, DRIVER)
    assert (wanted["gpu.count"], wanted["gpu.replicas"]) == ("7", "1")
    assert wanted["gpu.product"].endswith("-MIG-1g.5gb")


def test_accepts_a_label_that_an_implementation_writes_everywhere() -> None:
    """GPU Feature Discovery names the MIG strategy also on nodes without MIG."""
    promise = node({})
    own = labels(promise, mig__strategy="single")
    assert judged(promise, own).endswith("stale labels: mig.strategy=single")
    expected, actual = judge_labels(promise, own, DRIVER, {"mig.strategy"})
    assert expected == actual
