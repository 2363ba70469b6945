"""The Node object as the agent reads it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class NodeView:
    """What the agent reads of its Node object; ``runtime`` is the container runtime's version.

    ``version`` is its resourceVersion: a later one is a greater number.
    """

    uid: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    runtime: str = ""
    version: str = ""

    def is_older(self, other: NodeView) -> bool:
        """Return whether it is the same node as another view, known to be from before that one."""
        numbers = self.version.isdigit() and other.version.isdigit()
        return numbers and self.uid == other.uid and int(self.version) < int(other.version)
