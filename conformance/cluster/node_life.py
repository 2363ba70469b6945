"""Nodes that leave or die during a run: what fails there shows nothing of their GPUs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from conformance.cluster.api import Api
from conformance.cluster.last_look import last_look
from divvy.kube.errors import NOT_FOUND, ApiError, KubeError, Unreachable
from divvy.kube.kind import LEASE, NODE
from divvy.model.conditions import condition_of, is_ready

_LEASES = "kube-node-lease"
# A kubelet renews its lease each 10 s by default; the node turns NotReady after 40 s of silence.
_SILENT_SECONDS = 25.0
_KNOWN_SECONDS = 60.0


def not_ready(node: Mapping[str, Any]) -> str:
    """Return a message if a node is NotReady or leaves, else ""."""
    name = str(node["metadata"]["name"])
    if not is_ready(node):
        condition = condition_of(node, "Ready") or {"message": "no kubelet has reported"}
        return f"{name} is NotReady: {condition.get('message') or ''}".rstrip(": ")
    return f"{name} is being deleted" if node["metadata"].get("deletionTimestamp") else ""


@dataclass
class NodeLife:
    """Looks again at nodes on which something failed.

    A node that has just died counts as Ready for a while: whether its kubelet still renews its
    lease tells. The newest lease of all nodes is the clock: ours may be another.
    """

    api: Api
    silent_seconds: float = _SILENT_SECONDS
    _alive: dict[str, float] = field(default_factory=dict)

    def ended(self, name: str, *, wait: bool) -> str:
        """Return how a node has left or died since the run began, "" while it lives.

        With ``wait``, for a failure that a node's death explains, the kubelet's next sign of life
        is waited for.
        """
        try:
            node = self.api.get(NODE, name)
        except ApiError as problem:
            gone = problem.code == NOT_FOUND
            return f"{name} has left the cluster during the run" if gone else ""
        except Unreachable:
            return ""
        if node["metadata"].get("deletionTimestamp"):
            return f"{name} has left the cluster during the run"
        if why := not_ready(node):
            return f"{why} (since the run began)"
        if self._is_silent(name) or (wait and not self._renews(name)):
            return f"{name} is dying or cut off: its kubelet has stopped renewing its lease"
        return ""

    def _is_silent(self, name: str) -> bool:
        """Return whether a kubelet is behind all others; False if no lease can be read."""
        own = self._renewals(name).get(name)
        if own is None:
            return False
        newest = max(self._renewals().values(), default=own)
        return (newest - own).total_seconds() > self.silent_seconds

    def _renews(self, name: str) -> bool:
        """Wait for the kubelet's next sign of life; True where none can be read."""
        if time.monotonic() - self._alive.get(name, float("-inf")) < _KNOWN_SECONDS:
            return True
        first = self._renewals(name).get(name)
        renewed = first is None or first != last_look(
            lambda: self._renewals(name).get(name), lambda seen: seen != first, self.silent_seconds
        )
        if renewed:
            self._alive[name] = time.monotonic()
        return renewed

    def _renewals(self, name: str | None = None) -> Mapping[str, datetime]:
        """Return when each kubelet has renewed its lease, or that of one node."""
        try:
            if name is None:
                leases = self.api.find(LEASE, namespace=_LEASES)
            else:
                leases = [self.api.get(LEASE, name, _LEASES)]
        except KubeError:
            return {}
        times: dict[str, datetime] = {}
        for lease in leases:
            with contextlib.suppress(TypeError, ValueError):  # of this one: it was not renewed
                renewed: Any = (lease.get("spec") or {}).get("renewTime")
                times[lease["metadata"]["name"]] = datetime.fromisoformat(renewed)
        return times
