"""Which nodes move between the device plugin and claims, in which order, and after which pods."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from divvy.live.node_moves import MoveTarget, NodeMove, node_moves, pods_left
from divvy.live.pods import LivePod, live_pod
from divvy.model import parse_cluster
from divvy.model.stack import Names
from divvy.plan.fit.live_claims import claimed_gpus
from divvy.render.views.node_moves import node_move_lines
from tests.plan.claimed import claim, slices

CLAIMS = MoveTarget.CLAIMS
NOW = datetime(2026, 11, 24, tzinfo=UTC)
CLUSTER = parse_cluster(
    {
        "profiles": {"by-size": {"claims": {"shares": {}}}, "whole": {}},
        "pools": {
            "claims": {"profile": "by-size", "select": {"pool": "claims"}},
            "plugin": {"profile": "whole", "select": {"pool": "plugin"}},
        },
    }
)


def node(name: str, pool: str, gpus: str = "2", owner: str = "") -> dict[str, Any]:
    status = {"gpus": [{"index": 0, "uuid": "GPU-0", "owner": owner}]}
    annotations = {"divvy.gpu/status": json.dumps(status)} if owner else {}
    metadata = {"name": name, "labels": {"pool": pool}, "annotations": annotations}
    return {"metadata": metadata, "status": {"allocatable": {"nvidia.com/gpu": gpus}}}


def pod(name: str, on: str) -> LivePod:
    container = {"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": on, "containers": [container]}
    raw = {"metadata": {"name": name, "namespace": "team"}, "spec": spec, "status": {}}
    live = live_pod(raw, frozenset(), Names(), {}, NOW)
    assert live is not None
    return live


def test_orders_idle_nodes_first_and_names_the_pods_the_others_await() -> None:
    nodes = [node("a", "claims"), node("b", "claims"), node("c", "claims"), node("d", "plugin")]
    pods = [pod("one", "a"), pod("two", "a"), pod("three", "c"), pod("four", "d")]
    assert node_moves(CLUSTER, nodes, (), pods) == (
        NodeMove("b", CLAIMS, ()),
        NodeMove("c", CLAIMS, ("team/three",)),
        NodeMove("a", CLAIMS, ("team/one", "team/two")),
    )


def test_names_who_holds_a_claim_on_nodes_that_move_back() -> None:
    gpus = claimed_gpus(
        [*slices("d", {"shares": {}}), *slices("e", {"shares": {}})],
        [claim("train", "d", "gpu-d-0-share", "3000Mi", "30")],
    )
    nodes = [node("d", "plugin", "1"), node("e", "plugin", "0")]
    back = node_moves(CLUSTER, nodes, gpus, ())
    assert [(move.node, move.target, move.pods) for move in back] == [
        ("e", "the device plugin", ()),
        ("d", "the device plugin", ("team/train",)),
    ]


def test_names_pods_that_cannot_be_read_as_possible_holders() -> None:
    nodes = [node("a", "claims"), node("d", "plugin", "0")]
    moves = node_moves(CLUSTER, nodes, (), [pod("one", "a")], unread=["team/odd"])
    assert moves == (NodeMove("a", CLAIMS, ("team/one", "team/odd, which cannot be read")),)


def test_leaves_no_pod_behind_on_nodes_or_with_claims_that_cannot_be_read() -> None:
    held = claim("train", "b", "gpu-b-0-share", "3000Mi", "30")
    gpus = claimed_gpus(slices("b", {"shares": {}}), [held])
    assert pods_left(CLUSTER, [], gpus) == ()
    assert pods_left(CLUSTER, [], gpus, unread=["b"]) == ("team/train on b",)
    unknown = claimed_gpus(slices("b", {"shares": {}}), [], unread=["team/odd"])
    words = ("claim team/odd (of what cannot be read) on b",)
    assert pods_left(CLUSTER, [node("b", "deleted")], unknown) == words


def test_moves_no_node_that_no_pool_selects_and_names_the_pods_that_it_leaves_behind() -> None:
    """Without an agent nothing waits for them, and nothing gives their devices back."""
    gpus = claimed_gpus(
        [*slices("b", {"shares": {}}), *slices("c", {"shares": {}}), *slices("d", {"shares": {}})],
        [
            claim("notebook", "b", "gpu-b-0-share", "3000Mi", "30"),
            claim("train", "d", "gpu-d-0-share", "3000Mi", "30"),
        ],
    )
    nodes = [node("b", "deleted"), node("c", "deleted"), node("d", "plugin")]
    assert [move.node for move in node_moves(CLUSTER, nodes, gpus, ())] == ["d"]
    assert pods_left(CLUSTER, nodes, gpus) == ("team/notebook on b",)


def test_keeps_a_node_moving_until_claims_have_its_gpus() -> None:
    going = node("a", "claims", "0", owner="plugin (held by team/one)")
    gone = node("b", "claims", "0", owner="claims")
    moves = node_moves(CLUSTER, [going, gone], claimed_gpus(slices("b", {"shares": {}}), ()), ())
    assert [move.node for move in moves] == ["a"]


def test_prints_node_moves_in_lines() -> None:
    moves = [
        NodeMove("b", CLAIMS, ()),
        NodeMove("gpu-7", CLAIMS, ("team/one",)),
        *(NodeMove(f"n{n}", CLAIMS, tuple(f"team/p{p}" for p in range(5))) for n in range(20)),
    ]
    lines = list(node_move_lines(moves))
    assert lines[:4] == [
        "22 nodes to claims, each once no pod holds its GPUs:",
        "  b      at once",
        "  gpu-7  when team/one has ended",
        "  n0     when team/p0, team/p1, team/p2 and 2 more have ended",
    ]
    assert lines[-1] == "  and 2 more nodes"
