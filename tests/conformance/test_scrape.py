"""Metrics are found by name and labels."""

import pytest

from conformance.checks.verdicts import one_series_per_pod
from conformance.observe.scrape import Scrape

PAGE = """\
# HELP divvy_device_held Always 1; the labels name a device and the pod that holds it.
# TYPE divvy_device_held gauge
divvy_device_held{pod="one",resource="nvidia.com/gpu"} 1.0
divvy_device_held{pod="two",resource="nvidia.com/gpu.shared"} 1.0
# HELP used_mib Memory.
# TYPE used_mib gauge
used_mib{pod="one",gpu="0"} 2111.0
used_mib{pod="one",gpu="1"} 3.0
"""


@pytest.mark.parametrize(
    ("name", "labels", "values"),
    [
        ("divvy_device_held", {}, [1.0, 1.0]),
        ("divvy_device_held", {"pod": "one"}, [1.0]),
        ("divvy_device_held", {"pod": "one", "resource": "nvidia.com/gpu.shared"}, []),
        ("used_mib", {"pod": "one"}, [2111.0, 3.0]),
        ("used_mib", {"pod": "three"}, []),
        ("used", {}, []),
    ],
)
def test_finds_values_by_labels(name: str, labels: dict[str, str], values: list[float]) -> None:
    assert Scrape(PAGE).values(name, **labels) == values


def test_finds_lines_that_contain_all_parts() -> None:
    assert Scrape(PAGE).lines("used_mib{", 'gpu="1"') == 'used_mib{pod="one",gpu="1"} 3.0'


def held(pod: str, uuid: str) -> dict[str, str]:
    return {"pod": pod, "uuid": uuid}


EACH_HAS = "3 pods with a series each, two or more on one device"


@pytest.mark.parametrize(
    ("series", "seen"),
    [
        ([held("a", "GPU-1"), held("b", "GPU-2"), held("c", "GPU-1")], EACH_HAS),
        # The last pod's series hides the one of its neighbour.
        ([held("b", "GPU-2"), held("c", "GPU-1")], "a: 0 series; no two on one device"),
        (
            [held("a", "GPU-1"), held("a", "GPU-1"), held("b", "GPU-2"), held("c", "GPU-1")],
            "a: 2 series",
        ),
        (
            [held("a", "GPU-1"), held("b", "GPU-2"), held("c", "GPU-3")],
            "no two on one device",
        ),
        ([], "a: 0 series; b: 0 series; c: 0 series; no two on one device"),
    ],
)
def test_requires_a_series_for_each_pod_of_a_shared_device(
    series: list[dict[str, str]], seen: str
) -> None:
    assert one_series_per_pod("abc", series) == (EACH_HAS, seen)


def test_finds_series_by_their_labels() -> None:
    assert Scrape(PAGE).series("divvy_device_held", pod="one") == [
        {"pod": "one", "resource": "nvidia.com/gpu"}
    ]
