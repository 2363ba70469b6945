"""Which limit of memory `enforcement` comes to on a node, and what a profile may ask for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from divvy.model import (
    GpuFacts,
    InvalidCluster,
    Selection,
    canonical_json,
    gpu_model,
    parse_cluster,
    resolve,
)
from divvy.model.enforcement import NodeCapabilities, driver_limits_problem
from divvy.model.sharing import Sharing
from divvy.plan import guarantees, level

A100 = gpu_model("A100-SXM4-40GB")
R615 = NodeCapabilities("615.71.09", 2)


def limit(enforcement: str | None = None, **more: Any) -> dict[str, Any]:
    asked = {} if enforcement is None else {"enforcement": enforcement}
    return {"limit": "auto", "action": "prevent", **asked, **more}


def sharing(rule: dict[str, Any], capabilities: NodeCapabilities | None = None) -> Sharing:
    cluster = parse_cluster({"profiles": {"p": rule}, "pools": {"all": {"profile": "p"}}})
    facts = GpuFacts(0, "GPU-0", A100.product, A100.memory_mib, A100, (8, 0))
    node = resolve(cluster, Selection("all", "p", "pool", None), [facts], capabilities=capabilities)
    (offer,) = node.gpus[0].offers
    return offer.sharing


def sliced(enforcement: str | None = None, **more: Any) -> dict[str, Any]:
    return {"timeSlicing": {"replicas": 4, "memoryLimit": limit(enforcement), **more}}


@pytest.mark.parametrize(
    ("capabilities", "words"),
    [
        (replace(R615, driver="580.95.05"), "driver 580.95.05 limits no memory; 615 or newer does"),
        (replace(R615, driver="535.183.06"), "driver 535.183.06 limits no memory"),
        (replace(R615, cgroup=1), "this node has version 1"),
        (replace(R615, hook=False), "this node lacks one of them"),
    ],
)
def test_says_why_a_driver_limits_no_memory(capabilities: NodeCapabilities, words: str) -> None:
    assert words in driver_limits_problem(capabilities)


def test_limits_memory_by_driver_615() -> None:
    assert driver_limits_problem(R615) == ""


@pytest.mark.parametrize(
    ("driver", "cgroup", "expected"),
    [
        ("535.183.06", 2, "limiter"),
        ("570.133.20", 2, "limiter"),
        ("580.95.05", 2, "limiter"),
        ("615.71.09", 1, "limiter"),
        ("615.71.09", 2, "driver"),
    ],
)
def test_auto_means_the_strongest_that_a_node_has(driver: str, cgroup: int, expected: str) -> None:
    capabilities = replace(R615, driver=driver, cgroup=cgroup)
    assert sharing(sliced("auto"), capabilities).enforcement == expected
    in_mps = {"mps": {"replicas": 4, "memoryLimit": limit("auto")}}
    assert sharing(in_mps, capabilities).enforcement == expected


def test_keeps_what_a_rule_names_on_every_node() -> None:
    old = replace(R615, driver="535.183.06")
    assert sharing(sliced("driver"), old).enforcement == "driver"
    assert sharing(sliced("limiter"), R615).enforcement == "limiter"
    assert sharing(sliced("auto")).enforcement == "auto"


def test_without_the_key_a_rule_means_what_it_meant() -> None:
    assert sharing(sliced(), R615) == sharing(sliced("limiter"), R615)
    assert not sharing(sliced(), R615).by_driver
    assert "enforcement" not in canonical_json({"profiles": {"p": sliced()}})


@pytest.mark.parametrize(
    "rule",
    [
        sliced("auto", compute="share"),
        {"timeSlicing": {"replicas": 4, "memoryLimit": limit("auto", oversubscribe=2)}},
        {"mig": {"3g.20gb": 2}, **sliced("auto")},
    ],
)
def test_chooses_the_limiter_for_auto_if_only_that_will_do(rule: dict[str, Any]) -> None:
    assert sharing(rule, R615).enforcement == "limiter"


def test_guarantees_a_limit_per_process_by_mps() -> None:
    by_mps = sharing({"mps": {"replicas": 4, "memoryLimit": limit("mps")}})
    assert by_mps == sharing({"mps": {"replicas": 4}})


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (sliced("mps"), "share with `mps`"),
        (sliced("driver", compute="cap"), "has `compute`, which the limiter divides"),
        ({"mig": {"3g.20gb": 2}, **sliced("driver")}, "whole GPUs"),
        (
            {"timeSlicing": {"replicas": 4, "memoryLimit": limit("driver", oversubscribe=2)}},
            "the limiter alone gives the host's memory",
        ),
        (
            {"timeSlicing": {"replicas": 4, "memoryLimit": limit("auto", action="warn")}},
            "write `action: prevent`",
        ),
        (sliced("cgroup"), "auto, driver, mps or limiter is expected"),
    ],
)
def test_refuses_combinations_that_no_node_can_enforce(rule: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidCluster, match=words):
        sharing(rule)


def test_guarantees_no_more_than_the_weakest_that_may_come_of_it() -> None:
    def memory(rule: dict[str, Any], capabilities: NodeCapabilities | None = None) -> str:
        cluster = parse_cluster({"profiles": {"p": rule}, "pools": {"all": {"profile": "p"}}})
        facts = GpuFacts(0, "GPU-0", A100.product, A100.memory_mib, A100)
        node = resolve(
            cluster, Selection("all", "p", "pool", None), [facts], capabilities=capabilities
        )
        return guarantees(node.gpus[0].offers[0]).memory

    assert level(memory(sliced("auto"))) == level(memory(sliced())) == "prevented"
    assert "on nodes with driver 615 or newer" in memory(sliced("auto"))
    assert level(memory(sliced("driver"))) == "limited"
    assert memory(sliced("auto"), R615) == memory(sliced("driver"))
