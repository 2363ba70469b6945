"""Metrics are found by name and labels."""

import pytest

from conformance.scrape import Scrape

PAGE = """\
# HELP divvy_device_held 1 for a device and its holder.
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
def test_values_by_labels(name: str, labels: dict[str, str], values: list[float]) -> None:
    assert Scrape(PAGE).values(name, **labels) == values


def test_lines_that_contain_all_parts() -> None:
    assert Scrape(PAGE).lines("used_mib{", 'gpu="1"') == 'used_mib{pod="one",gpu="1"} 3.0'
