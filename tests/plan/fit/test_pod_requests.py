"""What the API server and the scheduler count of a pod whose resources are its own."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.plan.fit.pod_requests import pod_requests

CONTAINER = {"requests": {"cpu": "2"}, "limits": {"hugepages-2Mi": "4"}}


@pytest.mark.parametrize(
    ("of_pod", "expected"),
    [
        ({}, {"cpu": 4, "hugepages-2Mi": 8}),
        ({"requests": {"cpu": "8"}}, {"cpu": 8, "hugepages-2Mi": 8}),
        ({"limits": {"cpu": "16"}}, {"cpu": 4, "hugepages-2Mi": 8}),
        ({"limits": {"memory": "64"}}, {"cpu": 4, "memory": 64, "hugepages-2Mi": 8}),
        ({"limits": {"hugepages-2Mi": "10"}}, {"cpu": 4, "hugepages-2Mi": 10}),
        (
            {"requests": {"memory": "32"}, "limits": {"memory": "64"}},
            {"cpu": 4, "memory": 32, "hugepages-2Mi": 8},
        ),
    ],
)
def test_counts_what_is_requested_before_what_limits_the_pod(
    of_pod: dict[str, Any], expected: dict[str, int]
) -> None:
    containers = [{"resources": CONTAINER}, {"resources": CONTAINER}]
    assert pod_requests({"resources": of_pod, "containers": containers}) == expected


def test_counts_the_overhead_beside_the_limits_of_a_pod() -> None:
    spec = {"resources": {"limits": {"cpu": "2"}}, "containers": [{}], "overhead": {"cpu": "1"}}
    assert pod_requests(spec) == {"cpu": 3}
