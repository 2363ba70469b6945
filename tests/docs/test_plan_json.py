"""The page of the JSON has every key that the commands write, and every level in its order."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from divvy.live.live_diff import LiveDifference, LiveNode, compare_live
from divvy.live.node_moves import MoveTarget, NodeMove
from divvy.model import parse_cluster
from divvy.plan import diff, plan
from divvy.plan.fit import fit, nodes_of_plan, read_manifests
from divvy.plan.fit.manifest_kinds import Document
from divvy.plan.predict.guarantees import MEMORY_LEVELS, Guarantees, level
from divvy.plan.review.review import Review
from divvy.render.views.fit import fit_json
from divvy.render.views.live_diff import live_json
from divvy.render.views.plan_json import difference_document, plan_document, review_json

PAGE = (Path(__file__).parents[2] / "docs/plan-json.md").read_text()
LIMIT = {"limit": "auto"}
PREVENTED = {**LIMIT, "action": "prevent"}
RULES: dict[str, Any] = {
    "whole": {},
    "seven": {"mig": {"1g.5gb": 7}},
    "turns": {"timeSlicing": {"replicas": 4}},
    "watched": {"timeSlicing": {"replicas": 4, "memoryLimit": LIMIT}},
    "weighted": {"timeSlicing": {"replicas": 4, "memoryLimit": PREVENTED, "compute": "share"}},
    "capped": {"timeSlicing": {"replicas": 4, "memoryLimit": PREVENTED, "compute": "cap"}},
    "limited": {
        "timeSlicing": {"replicas": 4, "memoryLimit": {**PREVENTED, "enforcement": "driver"}}
    },
    "mps": {"mps": {"replicas": 4}},
    "by-size": {"claims": {"shares": {}}},
}
HARDWARE = {"model": "A100-SXM4-40GB", "gpus": 1, "count": 1}
CLUSTER = parse_cluster(
    {
        "profiles": RULES,
        "pools": {
            name: {"profile": name, "hardware": HARDWARE, "select": {"pool": name}}
            for name in RULES
        },
        "devices": [{"resource": "rdma/hca", "paths": ["/dev/infiniband/uverbs*"], "count": 8}],
    }
)
SMALLER = parse_cluster({"profiles": {"whole": {}}, "pools": {"all": {"profile": "whole"}}})
PLAN = plan(CLUSTER, "prod")
DIFFERENCE = diff(plan(SMALLER, "before"), PLAN)
REVIEW = Review((DIFFERENCE,), (), {})


def live() -> dict[str, Any]:
    nodes = [LiveNode("n", {"pool": "whole"}, {"nvidia.com/gpu": 2}, "Ready", "", 2)]
    difference: LiveDifference = compare_live(CLUSTER, "prod", nodes)
    moves = [NodeMove("n", MoveTarget.CLAIMS, ("team/one",))]
    return dict(json.loads(live_json(difference, moves)))


def fitting() -> dict[str, Any]:
    limits = {"nvidia.com/gpu": 1}
    container = {"name": "main", "image": "i", "resources": {"limits": limits}}
    pod = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"replicas": 9, "template": {"spec": {"containers": [container]}}},
    }
    pods = read_manifests([Document("pods.yaml", pod)], CLUSTER)
    return dict(json.loads(fit_json(fit(CLUSTER, "prod", nodes_of_plan(CLUSTER, PLAN), pods.pods))))


def keys(value: Any, parent: str = "", *, item: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Yield (key above, key, whether that has a list) for each key but those that are resources."""
    if isinstance(value, list):
        for entry in value:
            yield from keys(entry, parent, item=True)
    elif isinstance(value, dict):
        for key, below in value.items():
            if "/" in key:
                yield from keys(below, parent, item=item)
                continue
            yield parent, key, item
            if key != "guarantees":  # of every command the same
                yield from keys(below, key)


def has(section: str, parent: str, key: str, *, item: bool) -> bool:
    """Return whether a section has a key: by its path, or in the row of the key above."""
    rows = re.findall(r"^\| (.*?) \| (.*) \|$", section, re.MULTILINE)
    if not parent or item:
        word = rf"`{'' if not parent else '[.]?'}{key}(\[\])?[`.]"
        if any(re.search(word, first) for first, _ in rows):
            return True
    beside = [words for first, words in rows if re.search(rf"\b{parent}(\[\])?`", first)]
    path = re.search(rf"\b{parent}\.{key}`", section)
    return path is not None or any(re.search(rf"`{key}[`.]", words) for words in beside)


def lacking(title: str, document: dict[str, Any]) -> list[str]:
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    pairs = dict.fromkeys(keys(document))
    return [
        f"{parent}.{key}" for parent, key, item in pairs if not has(section, parent, key, item=item)
    ]


@pytest.mark.parametrize(
    ("section", "document"),
    [
        ("divvy plan -o json", plan_document(PLAN)),
        ("divvy diff A B -o json", difference_document(DIFFERENCE)),
        ("divvy diff --all -o json", {key: None for key in json.loads(review_json(REVIEW))}),
        ("divvy diff --live -s STACK -o json", live()),
        ("divvy fit PODS.yaml -s STACK -o json", fitting()),
    ],
    ids=["plan", "diff", "review", "live", "fit"],
)
def test_has_every_key(section: str, document: dict[str, Any]) -> None:
    assert lacking(section, document) == []


def shown(name: str) -> set[str]:
    nodes = [pool.node for pool in PLAN.pools if pool.node is not None]
    promises: list[Guarantees] = [device.guarantees for node in nodes for device in node.devices]
    promises += [kind.guarantees for node in nodes for kind in node.claimable]
    return {level(dict(promise.items())[name]) for promise in promises}


def listed(name: str) -> list[str]:
    """Return the levels that the page lists of one promise."""
    levels = PAGE.split("Levels, weakest first: ")[1].split("\n\n")[0]
    (words,) = re.findall(
        rf"\b{name}\b (?:shows the )?([^;.]*(?:\.5gb)?)", " ".join(levels.split())
    )
    return re.findall(r"`([^`]*)`", words)


@pytest.mark.parametrize("name", ["memory", "compute", "faults", "nvidiaSmi"])
def test_lists_every_level(name: str) -> None:
    assert set(listed(name.replace("nvidiaSmi", "nvidia-smi"))) == shown(name)


def test_lists_levels_of_memory_in_their_order() -> None:
    assert listed("memory") == list(reversed(MEMORY_LEVELS))
