"""A small stack file, and what it promises for live nodes."""

from typing import Any

from conformance.promise import NodePromise, node_promises
from divvy.model import parse_cluster
from divvy.plan import LiveNode, live_node, plan

CLUSTER: dict[str, Any] = {
    "profiles": {"whole": {}, "slices": {"timeSlicing": {"replicas": 4}}},
    "pools": {"p": {"hardware": {"model": "T4", "gpus": 2, "count": 2}, "profile": "whole"}},
}


def promised(value: dict[str, Any], *nodes: LiveNode) -> list[NodePromise]:
    cluster = parse_cluster(value)
    return node_promises(cluster, plan(cluster, "s"), nodes, None)


def live(name: str, allocatable: dict[str, str] | None = None, **labels: str) -> LiveNode:
    counts = {"nvidia.com/gpu": "2"} if allocatable is None else allocatable
    return live_node(
        name, {key.replace("__", "/"): text for key, text in labels.items()}, {}, counts
    )
