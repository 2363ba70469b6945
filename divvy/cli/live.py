"""Reads what the nodes of a cluster advertise, for ``divvy diff --live``."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from divvy.cli.cluster_reader import ClusterReader, NotAllowed, reading
from divvy.cli.errors import fail
from divvy.cli.node_moves import NodeMovesReader
from divvy.cli.output import Format, write
from divvy.model import Cluster
from divvy.plan import LiveNode, compare_live, live_node
from divvy.plan.live import unread_node
from divvy.plan.live_claims import ClaimedGpu, claimed_gpus, offered_kinds
from divvy.plan.node_conditions import not_ready
from divvy.plan.node_moves import NodeMove
from divvy.plan.readable import readable
from divvy.render.live import live_json, live_text

_SLICES = "/apis/resource.k8s.io/v1/resourceslices"


def show_live(cluster: Cluster, name: str, output: Format, out: Path | None) -> bool:
    """Compare the live nodes with a cluster's file and show it; tell whether they differ."""
    if output not in (Format.TEXT, Format.JSON):
        fail(f"--live supports -o text and json, not {output.value}")
    nodes = live_nodes(cluster, cluster.kubeconfig, cluster.context)
    difference = compare_live(cluster, name, nodes)
    with reading(cluster.kubeconfig, cluster.context) as reader:
        moves = _moves(reader, cluster)
    as_json = output is Format.JSON
    write(live_json(difference, moves) if as_json else live_text(difference, moves), out)
    return bool(difference)


def _moves(reader: ClusterReader, cluster: Cluster) -> tuple[NodeMove, ...]:
    """Return the nodes that move to or from claims; whoever may not read the pods sees none."""
    try:
        return NodeMovesReader(reader, cluster).moves()
    except NotAllowed as refusal:
        typer.echo(f"which nodes move to or from claims is not shown: {refusal}", err=True)
        return ()


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
