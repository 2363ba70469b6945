"""The way of nodes from the device plugin to claims and back: which go first, and after whom."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from divvy.live.live_diff import node_status
from divvy.live.observed_cluster import gpu_entries
from divvy.live.pods import LivePod
from divvy.model import Cluster, NodeFacts, pool_of
from divvy.model.problems import printable
from divvy.plan.fit.live_claims import ClaimedGpu
from divvy.plan.node_allocator import has_plugin_devices, is_by_claims


class MoveTarget(StrEnum):
    """Who serves the GPUs of a node after its move."""

    CLAIMS = "claims"
    PLUGIN = "the device plugin"


@dataclass(frozen=True)
class NodeMove:
    """One node that the stack file gives to another allocator.

    ``pods`` hold its GPUs, and end before it moves; with none it moves at once.
    """

    node: str
    target: MoveTarget
    pods: tuple[str, ...]


def node_moves(
    cluster: Cluster,
    nodes: Iterable[Mapping[str, Any]],
    gpus: Iterable[ClaimedGpu],
    pods: Sequence[LivePod],
    *,
    unread: Iterable[str] = (),
) -> tuple[NodeMove, ...]:
    """Return the nodes of the API that move, those first that the fewest pods hold up.

    ``unread`` are the names of pods that could not be read: each may be on any node.
    """
    unknown = [f"{name}, which cannot be read" for name in unread]
    claimed: dict[str, list[ClaimedGpu]] = defaultdict(list)
    for gpu in gpus:
        claimed[gpu.node].append(gpu)
    moves = []
    for raw in nodes:
        if not _has_pool(cluster, raw):
            continue  # no agent is there that could move it
        name = str(raw["metadata"]["name"])
        offered = claimed.get(name, [])
        if is_by_claims(cluster, raw):
            if not offered and advertises_gpus(raw):
                holding = (*_with_devices(name, pods), *unknown)
                moves.append(NodeMove(name, MoveTarget.CLAIMS, holding))
        elif offered:
            moves.append(NodeMove(name, MoveTarget.PLUGIN, _with_claims(offered)))
    return tuple(sorted(moves, key=lambda move: (move.target, len(move.pods), move.node)))


def pods_left(
    cluster: Cluster,
    nodes: Iterable[Mapping[str, Any]],
    gpus: Iterable[ClaimedGpu],
    *,
    unread: Iterable[str] = (),
) -> tuple[str, ...]:
    """Return the pods with claims on nodes of the API that no pool selects, each with its node.

    These nodes have no agent, which alone gives their devices back. So may be those of which only
    the names could be read, ``unread``; and a claim that cannot be read may be one of a pod.
    """
    left = {raw["metadata"]["name"] for raw in nodes if not _has_pool(cluster, raw)} | {*unread}
    held = {
        f"{who} on {gpu.node}"
        for gpu in gpus
        if gpu.node in left
        for _, holder in gpu.holders
        for who in (
            [f"{holder.namespace}/{pod}" for pod in holder.pods]
            or ([holder.words] if holder.unknown else [])
        )
    }
    return tuple(sorted(map(printable, held)))


def advertises_gpus(node: Mapping[str, Any]) -> bool:
    """Return whether a node of the API has GPUs of the device plugin, or withdraws them just now.

    Once they are withdrawn, its agent still tells who owned them.
    """
    if has_plugin_devices(node):
        return True
    status = node_status(node["metadata"].get("annotations") or {})
    return any(str(gpu.get("owner") or "").startswith("plugin") for gpu in gpu_entries(status))


def _has_pool(cluster: Cluster, node: Mapping[str, Any]) -> bool:
    meta = node["metadata"]
    return pool_of(cluster, NodeFacts(meta["name"], meta.get("labels") or {})) is not None


def _with_devices(node: str, pods: Iterable[LivePod]) -> tuple[str, ...]:
    names = {pod.pod.full_name for pod in pods if pod.node == node and pod.requests}
    return tuple(sorted(names))


def _with_claims(gpus: Iterable[ClaimedGpu]) -> tuple[str, ...]:
    held: set[str] = set()
    for gpu in gpus:
        for _, holder in gpu.holders:
            pods = [f"{holder.namespace}/{pod}" for pod in holder.pods]
            held.update(pods or [f"claim {holder.namespace}/{holder.claim}"])
    return tuple(sorted(map(printable, held)))
