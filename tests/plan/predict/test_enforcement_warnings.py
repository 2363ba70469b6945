"""Nodes that keep a memory limit by a weaker means than their profile allows are named."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.model import parse_cluster
from divvy.plan.predict.enforcement_warnings import namespace_warnings, rung_warnings

DRIVER = "nvidia.com/cuda.driver-version.full"


def sliced(enforcement: str, way: str = "timeSlicing") -> dict[str, Any]:
    limit = {"limit": "auto", "action": "prevent", "enforcement": enforcement}
    return {way: {"replicas": 4, "memoryLimit": limit}}


CLUSTER = parse_cluster(
    {
        "profiles": {name: sliced(name) for name in ("auto", "driver", "limiter")},
        "pools": {
            name: {"profile": name, "select": {"pool": name}}
            for name in ("auto", "driver", "limiter")
        },
    }
)


def node(name: str, pool: str, driver: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"pool": pool, DRIVER: driver}}}


def warnings(*nodes: dict[str, Any]) -> list[str]:
    return list(rung_warnings(CLUSTER, nodes))


def test_nodes_with_an_older_driver_are_named_with_what_follows() -> None:
    nodes = [node("a-0", "auto", "580.95.05"), node("a-1", "auto", "615.71.09")]
    assert warnings(*nodes, node("d-0", "driver", "570.133.20")) == [
        "the drivers of a-0 (580.95.05) are older than 615 and limit no memory: with "
        "`enforcement: auto` the limiter keeps memory limits there",
        "the drivers of d-0 (570.133.20) are older than 615 and limit no memory: with "
        "`enforcement: driver` they offer no replica",
    ]


@pytest.mark.parametrize("enforcement", ["auto", "driver"])
def test_shares_by_mps_fall_as_time_slices_do(enforcement: str) -> None:
    def fall(way: str) -> list[str]:
        rule = sliced(enforcement, way)
        cluster = parse_cluster({"profiles": {"p": rule}, "pools": {"all": {"profile": "p"}}})
        return list(rung_warnings(cluster, [node("n-0", "all", "580.95.05")]))

    assert fall("mps") == fall("timeSlicing") != []


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (node("a-0", "auto", "615.71.09"),),
        (node("l-0", "limiter", "550.163.01"),),
        (node("x-0", "other", "550.163.01"),),
        ({"metadata": {"name": "a-0", "labels": {"pool": "auto"}}},),
    ],
)
def test_nothing_is_said_of_others(nodes: tuple[dict[str, Any], ...]) -> None:
    assert warnings(*nodes) == []


def test_many_nodes_are_counted() -> None:
    (warning,) = warnings(*(node(f"a-{number}", "auto", "550.163.01") for number in range(5)))
    assert "a-2 (550.163.01) and 2 more are older" in warning


@pytest.mark.parametrize(
    "rule",
    [
        {"mig": {"3g.20gb": 2}, **sliced("auto")},
        {"timeSlicing": {**sliced("auto")["timeSlicing"], "compute": "share"}},
    ],
    ids=["MIG devices", "compute"],
)
def test_says_nothing_if_any_driver_leaves_it_to_the_limiter(rule: dict[str, Any]) -> None:
    cluster = parse_cluster({"profiles": {"p": rule}, "pools": {"all": {"profile": "p"}}})
    assert list(rung_warnings(cluster, [node("n-0", "all", "580.95.05")])) == []


MIXED = (node("n-0", "all", "580.95.05"), node("n-1", "all", "615.71.09"))


def of_mps(rule: dict[str, Any], *nodes: dict[str, Any]) -> list[str]:
    cluster = parse_cluster({"profiles": {"p": rule}, "pools": {"all": {"profile": "p"}}})
    return list(namespace_warnings(cluster, nodes))


def test_nodes_with_version_2_of_mps_are_named_beside_others_of_their_profile() -> None:
    assert of_mps({"mps": {"replicas": 4}}, *MIXED) == [
        "the drivers of n-0 (580.95.05) are older than 615: profile p is version 2 of MPS there, "
        "and a container can drop its limit of SMs, which it cannot on the others"
    ]


@pytest.mark.parametrize(
    ("rule", "nodes"),
    [
        ({"mps": {"replicas": 4}}, MIXED[:1]),
        ({"mps": {"replicas": 4}}, MIXED[1:]),
        ({"timeSlicing": {"replicas": 4}}, MIXED),
        ({"mps": {"replicas": 4, "failRequestsGreaterThanOne": True}}, MIXED),
    ],
    ids=["old nodes alone", "new nodes alone", "time slices", "limits of the daemon's own"],
)
def test_says_nothing_if_all_nodes_hold_shares_alike(
    rule: dict[str, Any], nodes: tuple[dict[str, Any], ...]
) -> None:
    assert of_mps(rule, *nodes) == []
