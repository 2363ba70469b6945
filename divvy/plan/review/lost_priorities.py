"""Nodes whose pods lose their priorities: they move from the device plugin to claims."""

from collections.abc import Iterable, Mapping
from typing import Any

from divvy.model import Cluster
from divvy.model.phrases import some
from divvy.model.problems import printable
from divvy.plan.node_allocator import has_plugin_devices, is_by_claims


def priorities_warning(cluster: Cluster, nodes: Iterable[Mapping[str, Any]]) -> str | None:
    """Warn of nodes of the API that advertise GPUs, and whose profile serves them by claims."""
    moving = sorted(
        printable(str(node["metadata"]["name"]))
        for node in nodes
        if has_plugin_devices(node) and is_by_claims(cluster, node)
    )
    if not moving:
        return None
    return (
        f"the GPUs of {some(moving)} move from the device plugin to "
        "claims: Kubernetes' scheduler preempts no pod for a claim, whatever the priorities; Kueue "
        "does (`divvy plan -o kueue`)"
    )
