"""The state of a node and its agent beside GPUs: whether they run, and why not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.model.conditions import condition_of, is_ready
from divvy.model.problems import printable


def not_ready(node: Mapping[str, Any]) -> str:
    """Return why a node is not ready and since when, "" if it is: ``NotReady since …: …``."""
    if is_ready(node):
        return ""
    condition = condition_of(node, "Ready")
    if not condition:
        return "NotReady: no kubelet has reported"
    since = condition.get("lastTransitionTime") or "an unknown time"
    return printable(f"NotReady since {since}: {_reason(condition)}")


def is_cordoned(node: Mapping[str, Any]) -> bool:
    """Return whether the scheduler puts no new pods on a node."""
    return bool((node.get("spec") or {}).get("unschedulable"))


def not_running(pod: Mapping[str, Any]) -> str:
    """Return why an agent's pod does not run or is not ready, "" if it is."""
    status = pod.get("status") or {}
    if pod["metadata"].get("deletionTimestamp"):
        return "is being deleted"
    for container in status.get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting")
        if waiting:
            return printable(_reason(waiting))
    if status.get("phase") != "Running":
        return printable(_reason(status) if status.get("reason") else f"is {status.get('phase')}")
    return "" if is_ready(pod) else "is not ready"


def _reason(value: Mapping[str, Any]) -> str:
    reason, message = value.get("reason") or "", " ".join(str(value.get("message") or "").split())
    message = message.removesuffix(".")
    return f"{reason}: {message}" if reason and message else reason or message or "no reason given"
