"""Nodes that a Divvy of another namespace serves: a second one would change them under it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from divvy.model import Cluster, NodeFacts, select_profile
from divvy.model.api_names import Component, component_labels
from divvy.model.phrases import some
from divvy.model.problems import printable

AGENTS = ",".join(f"{key}={value}" for key, value in component_labels(Component.AGENT).items())


def nodes_of_others(
    cluster: Cluster, agents: Iterable[Mapping[str, Any]], nodes: Iterable[Mapping[str, Any]]
) -> str | None:
    """Return why a stack must not be deployed beside the agents' pods of others, None if it may."""
    ours = {node["metadata"]["name"] for node in nodes if _is_selected(cluster, node)}
    served: dict[str, list[str]] = {}
    for pod in agents:
        namespace, node = pod["metadata"]["namespace"], str(pod["spec"].get("nodeName"))
        if namespace != cluster.namespace and node in ours:
            served.setdefault(namespace, []).append(node)
    if not served:
        return None
    texts = [
        f"{namespace}: {printable(some(sorted(names)))}"
        for namespace, names in sorted(served.items())
    ]
    return (
        "another Divvy serves nodes that this stack's pools select (namespace "
        f"{'; namespace '.join(texts)}). Two of them would change these nodes in turn: set "
        "`namespace` to that one to go on with its deployment, or select other nodes"
    )


def _is_selected(cluster: Cluster, node: Mapping[str, Any]) -> bool:
    metadata = node["metadata"]
    facts = NodeFacts(metadata["name"], metadata.get("labels") or {})
    return select_profile(cluster, facts).pool is not None
