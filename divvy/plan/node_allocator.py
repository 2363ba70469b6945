"""Who serves the GPUs of a node of the API: claims or the device plugin."""

from collections.abc import Mapping
from typing import Any

from divvy.model import Cluster, NodeFacts, select_profile
from divvy.model.quantities import parse_quantity
from divvy.model.resource_names import VENDOR


def is_by_claims(cluster: Cluster, node: Mapping[str, Any]) -> bool:
    """Return whether the stack file gives a node's GPUs to claims."""
    meta = node["metadata"]
    profile = select_profile(cluster, NodeFacts(meta["name"], meta.get("labels") or {})).profile
    return profile in cluster.profiles and cluster.profiles[profile].by_claims


def has_plugin_devices(node: Mapping[str, Any]) -> bool:
    """Return whether a node has devices of the device plugin now."""
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    return any(
        name.startswith(f"{VENDOR}/") and parse_quantity(number)
        for name, number in allocatable.items()
    )
