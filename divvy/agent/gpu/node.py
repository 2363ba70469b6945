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
        """Return whether it is known to be from before another view."""
        versions = self.version + other.version
        numbers = versions.isascii() and bool(self.version and other.version)
        return numbers and versions.isdigit() and int(self.version) < int(other.version)
