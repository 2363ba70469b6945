"""Nodes that leave or die during a run: what fails there shows nothing of their GPUs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
from lightkube import ApiError
from lightkube.generic_resource import create_namespaced_resource

from conformance.cluster.api import Api, Node

Lease = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
_LEASES = "kube-node-lease"
_NOT_FOUND = 404
# A kubelet renews its lease each 10 s by default; the node turns NotReady after 40 s of silence.
_SILENT_SECONDS = 25.0
_KNOWN_SECONDS = 60.0


def not_ready(node: Mapping[str, Any]) -> str:
    """Say that a node is NotReady or leaves, "" where pods can run on it."""
    metadata, status = node["metadata"], node.get("status") or {}
    name = str(metadata["name"])
    ready = [one for one in status.get("conditions") or [] if one["type"] == "Ready"]
    if not ready or ready[0]["status"] != "True":
        said = ready[0].get("message") or "" if ready else "no kubelet has reported"
        return f"{name} is NotReady: {said}".rstrip(": ")
    return f"{name} is being deleted" if metadata.get("deletionTimestamp") else ""


@dataclass
class NodeLife:
    """Looks again at nodes on which something failed.

    A node that has just died counts as Ready for a while: whether its kubelet still renews its
    lease tells.
    """

    api: Api
    silent_seconds: float = _SILENT_SECONDS
    _alive: dict[str, float] = field(default_factory=dict)
    _silent: dict[str, str] = field(default_factory=dict)

    def ended(self, name: str) -> str:
        """Say how a node has left or died since the run began, "" while it lives."""
        try:
            node = self.api.get(Node, name)
        except ApiError as problem:
            gone = problem.status.code == _NOT_FOUND
            return f"{name} has left the cluster during the run" if gone else ""
        except httpx2.HTTPError:
            return ""
        if node["metadata"].get("deletionTimestamp"):
            return f"{name} has left the cluster during the run"
        if why := not_ready(node):
            return f"{why} (since the run began)"
        if time.monotonic() - self._alive.get(name, float("-inf")) < _KNOWN_SECONDS:
            return ""
        if self._renews(name):
            self._alive[name] = time.monotonic()
            return ""
        return f"{name} is dying or cut off: its kubelet has stopped renewing its lease"

    def _renews(self, name: str) -> bool:
        """Wait for the kubelet's next sign of life; True where none can be read."""
        first = self._silent.get(name) or self._renewed(name)
        if not first:
            return True
        deadline = time.monotonic() + (0 if name in self._silent else self.silent_seconds)
        while True:
            if self._renewed(name) != first:
                self._silent.pop(name, None)
                return True
            if time.monotonic() > deadline:
                self._silent[name] = first
                return False
            time.sleep(1)

    def _renewed(self, name: str) -> str:
        try:
            lease = self.api.get(Lease, name, _LEASES)
        except (ApiError, httpx2.HTTPError):
            return ""
        return str(lease["spec"].get("renewTime") or "")
