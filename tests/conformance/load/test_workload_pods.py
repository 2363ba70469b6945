"""Pods that hold devices while something happens to their node."""

import pytest

from conformance.load.workload_pods import kinds_to_hold
from conformance.promise import device_promises
from conformance.skips import NotApplicable
from tests.conformance.promised_nodes import CLUSTER, live, promised


def test_shows_nothing_of_pods_where_none_can_hold_a_device() -> None:
    """0 of 0 pods that compute on are no proof."""
    promises = device_promises(promised(CLUSTER, live("n1")))
    assert kinds_to_hold(promises) == promises
    with pytest.raises(NotApplicable, match="pods claim all GPUs of the node"):
        kinds_to_hold([])
