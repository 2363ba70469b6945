"""Which nodes of a fleet a run is about."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from conformance.promise import NodePromise
from conformance.sample import changed, parse_sample, sampled
from tests.conformance.promised_nodes import CLUSTER, live, promised

FLEET = promised(CLUSTER, *(live(f"n{number}") for number in range(40)))


def names(nodes: list[NodePromise]) -> list[str]:
    return [node.name for node in nodes]


def test_samples_each_pool_and_profile_and_ready_nodes_first() -> None:
    slices = live("d", **{"divvy.gpu/profile": "slices"})
    nodes = promised(CLUSTER, live("a"), live("b"), live("c"), slices)
    nodes = [replace(node, unready="away" if node.name != "b" else "") for node in nodes]
    assert names(sampled(nodes, parse_sample("1", ""))) == ["b", "d"]
    assert names(sampled(nodes, None)) == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("text", "size"), [("5%", 2), ("0.1%", 1), ("100%", 40), ("7", 7), ("99", 40)]
)
def test_reads_a_sample_as_a_number_or_a_part(text: str, size: int) -> None:
    assert len(sampled(FLEET, parse_sample(text, "seed"))) == size


@pytest.mark.parametrize(("text", "size"), [("7%", 7), ("55%", 55), ("0.7%", 1), ("7.01%", 8)])
def test_takes_no_node_more_than_a_part_says(text: str, size: int) -> None:
    assert parse_sample(text, "").size(100) == size


@pytest.mark.parametrize("text", ["0", "0%", "101%", "-1", "5 %%", "", "all", "1.5", "9" * 5000])
def test_refuses_a_sample_that_is_neither(text: str) -> None:
    with pytest.raises(ValueError, match="a number of nodes such as 3, or a part such as 5%"):
        parse_sample(text, "")


def test_samples_the_same_nodes_by_the_same_seed() -> None:
    monday, tuesday = (sampled(FLEET, parse_sample("25%", seed)) for seed in ("mon", "tue"))
    assert names(monday) == names(sampled(FLEET, parse_sample("10", "mon")))
    assert names(monday) != names(tuesday)
    gone = [node for node in FLEET if node not in monday[:1]]
    assert set(names(monday[1:])) < set(names(sampled(gone, parse_sample("10", "mon"))))
    # No name is more likely than others: over many seeds every node is taken.
    sampled_names = {
        name for seed in range(300) for name in names(sampled(FLEET, parse_sample("5%", str(seed))))
    }
    assert len(sampled_names) == len(FLEET)


def entry(node: NodePromise, **more: Any) -> dict[str, Any]:
    return {"name": node.name, "driver": "550.163.01", "boot": "0a1b2c3d", **more}


def earlier(*checks: Mapping[str, Any], generation: str = "g") -> dict[str, Any]:
    nodes = [{**entry(node), "simulated": True} for node in FLEET[1:]]
    environment = {"stackFile": {"generation": generation}, "nodes": nodes}
    return {"environment": environment, "checks": list(checks)}


def test_omits_nodes_unchanged_since_the_earlier_report() -> None:
    upgraded, rebooted = FLEET[5].name, FLEET[6].name

    def now(node: NodePromise) -> dict[str, Any]:
        if node.name == upgraded:
            return entry(node, driver="580.95")
        return entry(node, boot="ffffffff") if node.name == rebooted else entry(node)

    checks = (
        {"id": "ISO-02", "case": f"{FLEET[7].name}:gpu", "status": "failed"},
        {"id": "ISO-02", "case": f"{FLEET[8].name}:gpu", "status": "skipped", "missed": "not made"},
        {"id": "HW-01", "case": f"{FLEET[9].name}:gpu", "status": "skipped", "missed": "option"},
    )
    nodes = changed(FLEET, now, earlier(*checks), "g")
    assert names(nodes) == [FLEET[0].name, *(FLEET[number].name for number in (5, 6, 7, 8))]


def test_counts_every_node_as_changed_by_another_stack_file() -> None:
    assert changed(FLEET, entry, earlier(generation="other"), "g") == FLEET
