"""A small stack file, and what it promises for live nodes."""

from typing import Any

from conformance.promise import DevicePromise, NodePromise, device_promises, node_promises
from divvy.live.live_diff import LiveNode, live_node
from divvy.model import parse_cluster
from divvy.plan import plan

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


def limited_share(mib: int) -> DevicePromise:
    """Promise shares of one T4 that are limited to a size."""
    limit = {"limit": f"{mib}Mi", "action": "prevent"}
    cluster = {
        "profiles": {"limited": {"timeSlicing": {"replicas": 4, "memoryLimit": limit}}},
        "pools": {"p": {"hardware": {"model": "T4", "gpus": 1, "count": 1}, "profile": "limited"}},
    }
    (promise,) = device_promises(promised(cluster, live("n", {"nvidia.com/gpu.shared": "4"})))
    return promise
