"""Nodes on which the agent's image does not run: they have other processors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from divvy.model import Cluster, NodeFacts, pool_of
from divvy.model.phrases import some
from divvy.model.platform_checks import pool_platforms
from divvy.model.problems import printable
from divvy.model.stack import tolerations_of
from divvy.plan.fit.node_selection import NodeSelection, taints_of

# Every DaemonSet's pods tolerate what Kubernetes itself taints nodes with.
_OF_KUBERNETES = "node.kubernetes.io/"


def lacking_platform(
    cluster: Cluster, platforms: Collection[str], nodes: Iterable[Mapping[str, Any]]
) -> str | None:
    """Return for which pool an image for some platforms is of no use, None if it suits all.

    ``nodes`` are those of the API; what they say of themselves counts before the stack file.
    """
    lacking: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        if _keeps_agents_away(cluster, node):
            continue
        meta, info = node["metadata"], (node.get("status") or {}).get("nodeInfo") or {}
        pool = pool_of(cluster, NodeFacts(meta["name"], meta.get("labels") or {}))
        platform = f"linux/{info.get('architecture', '')}"
        if pool is not None and info.get("architecture") and platform not in platforms:
            lacking.setdefault((pool, platform), []).append(meta["name"])
    for (pool, platform), names in lacking.items():
        named = printable(some(sorted(names)))
        return _words(cluster, pool, f"nodes {named}", printable(platform), platforms)
    for needed in pool_platforms(cluster):
        if needed.platform not in platforms:
            return _words(cluster, needed.pool, needed.value, needed.platform, platforms)
    return None


def _keeps_agents_away(cluster: Cluster, node: Mapping[str, Any]) -> bool:
    tolerations = tolerations_of(cluster.pools.values())
    taints = taints_of(node.get("spec") or {})
    others = [taint for taint in taints if not taint.key.startswith(_OF_KUBERNETES)]
    return NodeSelection(tolerations=tolerations).untolerated(others) is not None


def _words(
    cluster: Cluster, pool: str, what: str, platform: str, platforms: Collection[str]
) -> str:
    image = cluster.plugin.image
    reference = None if image is None else image.reference
    remedy = (
        f"add {platform} to plugin.image.platforms"
        if reference is None
        else f"name one that is for {platform}, too, in plugin.image.reference"
    )
    return (
        f"pools.{pool}: {what}: need an image for {platform}, and the agent's is for "
        f"{', '.join(sorted(platforms))}: {remedy}"
    )
