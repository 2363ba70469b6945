"""Reads what the nodes of a cluster advertise."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from divvy.live.cluster_reader import reading
from divvy.live.live_diff import LiveNode, live_node, unread_node
from divvy.live.node_conditions import not_ready
from divvy.model import Cluster
from divvy.plan.fit.live_claims import ClaimedGpu, claimed_gpus, offered_kinds
from divvy.plan.fit.readable import readable

_SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def live_nodes(cluster: Cluster, kubeconfig: str | None, context: str | None) -> list[LiveNode]:
    """Read every node of the cluster that `divvy up` deploys to; raises KubeconfigError."""
    with reading(kubeconfig, context) as reader:
        nodes = list(readable(reader.paged("/api/v1/nodes"), live_node_of, reader.note))
        nodes += map(unread_node, reader.unread("nodes"))
        # A cluster before 1.34 has none, and is still asked: claims may have gone.
        gpus = claimed_gpus(list(reader.paged(_SLICES)), (), note=reader.note)
    return with_claims(nodes, gpus, cluster)


def with_claims(
    nodes: Iterable[LiveNode], gpus: Iterable[ClaimedGpu], cluster: Cluster
) -> list[LiveNode]:
    """Return nodes with what their GPUs offer to claims."""
    by_node: dict[str, list[ClaimedGpu]] = {}
    for gpu in gpus:
        by_node.setdefault(gpu.node, []).append(gpu)
    return [
        replace(node, claimable=offered_kinds(by_node.get(node.name, ()), cluster.names))
        for node in nodes
    ]


def live_node_of(node: Mapping[str, Any]) -> LiveNode:
    """Turn a Node of the API into what a comparison needs."""
    metadata = node["metadata"]
    live = live_node(
        metadata["name"],
        metadata.get("labels") or {},
        metadata.get("annotations") or {},
        node.get("status", {}).get("allocatable") or {},
    )
    return replace(live, unavailable=not_ready(node))
