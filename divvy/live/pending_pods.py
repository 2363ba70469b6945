"""Reasons in a pod's own state why it does not run."""

from collections.abc import Mapping, Sequence
from typing import Any

from divvy.model.claim_status import is_allocated
from divvy.model.conditions import refused_place
from divvy.model.problems import printable


def is_waiting(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod has not started yet."""
    return bool((pod.get("status") or {}).get("phase") == "Pending")


def is_unscheduled(pod: Mapping[str, Any]) -> bool:
    """Return whether a pod still waits for a node."""
    return is_waiting(pod) and not pod["spec"].get("nodeName")


def is_claim_of(claim: Mapping[str, Any], pod: Mapping[str, Any]) -> bool:
    """Return whether a pod names a claim, or has it from a template."""
    meta = claim["metadata"]
    if meta["namespace"] != pod["metadata"]["namespace"]:
        return False
    owners = [owner.get("uid") for owner in meta.get("ownerReferences") or ()]
    named = {entry.get("resourceClaimName") for entry in pod["spec"].get("resourceClaims") or ()}
    return pod["metadata"]["uid"] in owners or meta["name"] in named


def notes_of(
    pod: Mapping[str, Any],
    claims: Sequence[Mapping[str, Any]],
    events: Sequence[Mapping[str, Any]],
) -> tuple[str, ...]:
    """Return what is known beside the GPUs: phase, claims that are missing, the node's troubles."""
    status = pod.get("status") or {}
    if not is_waiting(pod):
        return (f"it is not waiting: its phase is {status.get('phase', 'Unknown')}",)
    notes = []
    if pod["metadata"].get("deletionTimestamp"):
        notes.append("it is being deleted")
    if lacks_claims(pod):
        notes += _missing(events)
    node = pod["spec"].get("nodeName")
    if node:
        allocated = all(map(is_allocated, claims))
        if claims and allocated:
            notes.append(f"its devices are allocated on {node}, which prepares them")
        else:
            notes.append(f"it is scheduled on {node}, which has not started it yet")
        notes += _last(events, ("FailedPrepareDynamicResources", "Failed", "FailedMount"))
    elif not notes:
        refused = refused_place(pod)
        scheduler = f"the scheduler says: {_on_one_line(refused.get('message'))}"
        notes.append(scheduler if refused else "the scheduler has not looked at it yet")
    return tuple(notes)


def lacks_claims(pod: Mapping[str, Any]) -> bool:
    """Return whether a template of the pod has no claim yet.

    Every pod by size has an event that its template was missing: the template is written after it.
    """
    created = {
        status["name"] for status in (pod.get("status") or {}).get("resourceClaimStatuses") or ()
    }
    entries = pod["spec"].get("resourceClaims") or ()
    return any(
        "resourceClaimTemplateName" in entry and entry["name"] not in created for entry in entries
    )


def _missing(events: Sequence[Mapping[str, Any]]) -> list[str]:
    return [
        f"its claim has not been created yet: {text}"
        for text in _last(events, ("FailedResourceClaimCreation",))
    ]


def _last(events: Sequence[Mapping[str, Any]], reasons: tuple[str, ...]) -> list[str]:
    """Return the message of the newest event for one of these reasons."""
    matches = [event for event in events if event.get("reason") in reasons]
    if not matches:
        return []
    newest = max(matches, key=_time)
    return [_on_one_line(newest.get("message"))]


def _on_one_line(message: object) -> str:
    """Return a text that whoever may write events of the pod has chosen, for a terminal."""
    return printable(" ".join(str(message or "").split()))


def _time(event: Mapping[str, Any]) -> str:
    times = (event.get(key) for key in ("lastTimestamp", "eventTime", "firstTimestamp"))
    return next((str(time) for time in times if time), "")
