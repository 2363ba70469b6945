"""The conditions in the status of an object of the API."""

from collections.abc import Mapping
from typing import Any


def condition_of(obj: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
    """Return an object's condition of a type, {} if it has none."""
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return next((condition for condition in conditions if condition.get("type") == kind), {})


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Return whether a node or a pod is ready."""
    return bool(condition_of(obj, "Ready").get("status") == "True")


def refused_place(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return why the scheduler finds no node for a pod, {} if it has found one or not looked."""
    scheduled = condition_of(pod, "PodScheduled")
    return scheduled if scheduled.get("status") == "False" else {}
