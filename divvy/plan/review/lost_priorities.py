"""Nodes whose pods lose their priorities: they move from the device plugin to claims."""

from collections.abc import Iterable, Mapping
from typing import Any

from divvy.model import Cluster, NodeFacts, select_profile
from divvy.model.phrases import some
from divvy.model.problems import printable
from divvy.model.quantities import parse_quantity
from divvy.model.resource_names import VENDOR


def priorities_warning(cluster: Cluster, nodes: Iterable[Mapping[str, Any]]) -> str | None:
    """Warn of nodes of the API that advertise GPUs, and whose profile serves them by claims."""
    moving = sorted(
        printable(str(node["metadata"]["name"]))
        for node in nodes
        if _has_plugin(node) and _is_by_claims(cluster, node)
    )
    if not moving:
        return None
    return (
        f"the GPUs of {some(moving)} move from the device plugin to "
        "claims: Kubernetes' scheduler preempts no pod for a claim, whatever the priorities; Kueue "
        "does (`divvy plan -o kueue`)"
    )


def _has_plugin(node: Mapping[str, Any]) -> bool:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return any(
        name.startswith(f"{VENDOR}/") and parse_quantity(number)
        for name, number in allocatable.items()
    )


def _is_by_claims(cluster: Cluster, node: Mapping[str, Any]) -> bool:
    meta = node["metadata"]
    profile = select_profile(cluster, NodeFacts(meta["name"], meta.get("labels") or {})).profile
    return profile in cluster.profiles and cluster.profiles[profile].by_claims
