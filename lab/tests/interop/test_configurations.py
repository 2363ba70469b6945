"""What NVIDIA's programs are told, and what that promises of the lab's nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.model import parse_document
from divvy.plan import plan
from lab.interop.configurations import CONFIGURATIONS, DriverConfiguration, PluginConfiguration

BASE = yaml.safe_load((Path(__file__).parents[3] / "lab/interop/stack.yaml").read_text())


@pytest.mark.parametrize(
    ("name", "a100", "t4"),
    [
        ("whole", {"gpu": 2}, 1),
        ("time-slicing", {"gpu": 8}, 4),
        ("mps", {"gpu": 8}, 4),
        ("mig-mixed", {"mig-1g.5gb": 4, "mig-2g.10gb": 2, "mig-3g.20gb": 2}, 1),
        ("mig-single", {"gpu": 14}, 1),
        ("dra-whole", {"gpu": 2}, 1),
        ("dra-time-slicing", {"gpu": 8}, 4),
        ("dra-mig", {"mig-1g.5gb": 4, "mig-2g.10gb": 2, "mig-3g.20gb": 2}, 1),
        ("dra-mig-on-demand", {"mig-1g.5gb": 14}, 1),
    ],
)
def test_derives_the_promise_from_the_implementations_own_configuration(
    name: str, a100: dict[str, int], t4: int
) -> None:
    stack = CONFIGURATIONS[name].stack(BASE)
    pools = plan(parse_document(stack["config"]["divvy:cluster"]).cluster, "field").pools
    promised = {pool.name: dict(pool.node.per_node) for pool in pools if pool.node}
    assert promised == {
        "a100": {f"nvidia.com/{resource}": count for resource, count in a100.items()},
        "t4": {"nvidia.com/gpu": t4},
    }


def test_leaves_the_base_configuration_as_it_was() -> None:
    CONFIGURATIONS["time-slicing"].stack(BASE)
    assert list(BASE["config"]["divvy:cluster"]["profiles"]) == ["whole"]


def plugin_file(name: str) -> dict[str, Any]:
    configuration = CONFIGURATIONS[name]
    assert isinstance(configuration, PluginConfiguration)
    return configuration.plugin_file


def test_writes_the_plugins_file_in_its_own_words() -> None:
    assert plugin_file("mig-single") == {"version": "v1", "flags": {"migStrategy": "single"}}
    sharing = plugin_file("time-slicing")["sharing"]["timeSlicing"]
    assert sharing["resources"] == [{"name": "nvidia.com/gpu", "replicas": 4}]


def test_opens_only_the_gates_that_a_configuration_needs() -> None:
    values = {
        name: configuration.chart_values
        for name, configuration in CONFIGURATIONS.items()
        if isinstance(configuration, DriverConfiguration)
    }
    assert values == {
        "dra-whole": {},
        "dra-time-slicing": {
            "featureGates": {"ConsumableShares": True, "TimeSlicingSettings": True},
            "consumableShares": "4",
        },
        "dra-shares": {
            "featureGates": {"ConsumableShares": True},
            "consumableShares": "memory",
        },
        "dra-mig": {},
        "dra-mig-on-demand": {"featureGates": {"DynamicMIG": True}},
    }
