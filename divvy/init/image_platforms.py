"""The platforms that a new stack file has the agent's image built for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from divvy.init.gpu_node import GpuNode
from divvy.model.stack import PlatformName


def image_platforms(
    gpu_nodes: Sequence[GpuNode], nodes: Iterable[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the platforms of a cluster's nodes, nothing where those with GPUs are the usual ones.

    Nodes without GPUs count, too: the template maker may go to any.
    """
    if all(node.architecture in ("", "amd64") for node in gpu_nodes):
        return ()
    facts = ((node.get("status") or {}).get("nodeInfo") or {} for node in nodes)
    present = {f"linux/{info.get('architecture')}" for info in facts}
    return tuple(name for name in get_args(PlatformName) if name in present)
