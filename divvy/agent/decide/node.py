"""The Node object as the agent reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class NodeView:
    """What the agent reads of its Node object; ``runtime`` is the container runtime's version."""

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime: str = ""
