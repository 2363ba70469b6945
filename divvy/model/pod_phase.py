"""The phases in which a pod has finished: it holds nothing any more."""

from collections.abc import Mapping
from typing import Any

FINISHED = ("Succeeded", "Failed")
# Selects the others, as a part of the URL of a list.
UNFINISHED = "fieldSelector=status.phase%21%3DSucceeded,status.phase%21%3DFailed"


def is_finished(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod of the API has finished."""
    return (pod.get("status") or {}).get("phase") in FINISHED
