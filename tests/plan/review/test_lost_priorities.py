"""Who loses the priorities of pods is told before it happens."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.model import parse_cluster
from divvy.plan.review.lost_priorities import priorities_warning

CLUSTER: dict[str, Any] = {
    "profiles": {"claimed": {"claims": {"shares": {}}}, "plugin": {}},
    "pools": {"a": {"profile": "claimed", "select": {"pool": "a"}, "overrides": {"a-1": "plugin"}}},
}


def node(name: str, gpus: str = "2", pool: str = "a") -> dict[str, Any]:
    metadata = {"name": name, "labels": {"pool": pool}}
    return {"metadata": metadata, "status": {"allocatable": {"cpu": "4", "nvidia.com/gpu": gpus}}}


def test_names_nodes_that_move_from_the_plugin_to_claims() -> None:
    nodes = [node("a-0"), node("a-1"), node("a-2", gpus="0"), node("b-0", pool="b")]
    warning = priorities_warning(parse_cluster(CLUSTER), nodes)
    assert warning is not None
    assert warning.startswith(
        "the GPUs of a-0 move from the device plugin to claims: Kubernetes' scheduler preempts no"
    )


@pytest.mark.parametrize("nodes", [[], [node("a-1")], [node("a-0", gpus="0")]])
def test_warns_of_no_lost_priorities_when_no_node_moves(nodes: list[dict[str, Any]]) -> None:
    assert priorities_warning(parse_cluster(CLUSTER), nodes) is None


def test_counts_the_nodes_beyond_the_first_few() -> None:
    warning = priorities_warning(
        parse_cluster(CLUSTER), [node(f"node-{number}") for number in range(5)]
    )
    assert warning is not None
    assert "node-0, node-1, node-2 and 2 more" in warning
