"""The rollout of a DaemonSet or Deployment: complete once its present template runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def not_rolled_out(live: Mapping[str, Any], unready: int) -> str:
    """Return what of a rollout is missing, "" if nothing is.

    ``unready`` nodes can run no pod: what is missing on as many is their fault.
    """
    status = live.get("status") or {}
    if int(status.get("observedGeneration") or 0) < int(live["metadata"].get("generation") or 0):
        return "its controller has not taken up the last change"
    if live["kind"] == "DaemonSet":
        wanted = int(status.get("desiredNumberScheduled") or 0)
        updated = int(status.get("updatedNumberScheduled") or 0)
        ready = int(status.get("numberReady") or 0)
    else:
        unready = 0
        wanted = int(live["spec"].get("replicas", 1))
        updated = int(status.get("updatedReplicas") or 0)
        ready = int(status.get("availableReplicas") or 0)
    if updated < wanted - unready:
        return f"its present template runs in {updated} of {wanted} pods"
    if ready < wanted - unready:
        return f"{ready} of {wanted} pods are ready"
    return ""
