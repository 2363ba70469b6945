"""Reads what the nodes of a cluster advertise."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from divvy.live.cluster_reader import reading
from divvy.live.live_diff import LiveNode, live_node, unread_node
from divvy.live.node_conditions import not_ready
from divvy.model import Cluster
from divvy.model.problems import printable
from divvy.model.slice_specs import slice_name
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
        unread = reader.unread("resourceslices")
    return with_claims(nodes, gpus, cluster, unread)


def with_claims(
    nodes: Iterable[LiveNode],
    gpus: Iterable[ClaimedGpu],
    cluster: Cluster,
    unread: Collection[str] = (),
) -> list[LiveNode]:
    """Return nodes with what their GPUs offer to claims.

    Of nodes whose slices are among ``unread``, by name, that is unknown.
    """
    by_node: dict[str, list[ClaimedGpu]] = {}
    for gpu in gpus:
        by_node.setdefault(gpu.node, []).append(gpu)
    return [
        replace(
            node,
            claimable=offered_kinds(by_node.get(node.name, ()), cluster.names),
            unavailable=node.unavailable or _unread_slice(node.name, unread),
        )
        for node in nodes
    ]


def _unread_slice(node: str, unread: Iterable[str]) -> str:
    name = next((name for name in unread if name.startswith(slice_name(node, ""))), "")
    words = f"its ResourceSlice {name} cannot be read: what it offers to claims is unknown"
    return printable(words) if name else ""


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
