"""Devices are free again: pods that come and go, on an API server of the test's own."""

from typing import Any

import pytest

from conformance.load.release import MAX_PODS_IN_A_ROW, MIN_PODS_IN_A_ROW, release
from tests.conformance.fake_api import FakeApi, succeeded
from tests.conformance.test_pod_runs import namespace, whole


class LeakyNode:
    """A kubelet that no longer finds all devices after so many pods."""

    def __init__(self, pods: int) -> None:
        self.left = pods

    def __call__(self, body: dict[str, Any]) -> dict[str, Any]:
        limits = body["spec"]["containers"][0]["resources"]["limits"]
        if "nvidia.com/gpu" not in limits and "initContainers" not in body["spec"]:
            return succeeded(body)
        self.left -= 1
        if self.left >= 0:
            return succeeded(body)
        return {"phase": "Failed", "reason": "UnexpectedAdmissionError", "message": "1 of 2 left"}


def verdict(pods: int, seconds: float = 60.0) -> tuple[str, str]:
    api = FakeApi(LeakyNode(pods), lambda _: "GPU 0: x (UUID: GPU-1)")
    return release(namespace(api), whole(), seconds)


def test_passes_a_node_that_leaks_nothing() -> None:
    expected, seen = verdict(100)
    assert seen == expected
    assert f"{MAX_PODS_IN_A_ROW} in a row: Succeeded" in expected


def test_runs_fewer_pods_in_a_row_on_a_slow_node() -> None:
    expected, seen = verdict(100, seconds=0.0)
    assert seen == expected
    assert expected.endswith(f", {MIN_PODS_IN_A_ROW} in a row: Succeeded")


@pytest.mark.parametrize(("before", "number"), [(4, 1), (9, 6), (3 + MAX_PODS_IN_A_ROW, 50)])
def test_names_a_leak_by_the_pod_that_finds_it(before: int, number: int) -> None:
    expected, seen = verdict(before)
    assert seen != expected
    assert f"pod {number}: UnexpectedAdmissionError: 1 of 2 left" in seen
