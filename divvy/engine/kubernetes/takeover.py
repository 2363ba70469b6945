"""Fields that other clients manage and the stack's field manager takes over.

The official provider creates by POST (manager ``pulumi-kubernetes``, operation Update) and changes
by server-side apply under the manager that it recorded. Whoever edits an object with kubectl
becomes a manager too ("kubectl-edit", "kubectl-patch" …). Until such a manager's fields are handed
over, an apply conflicts with it, and a field or list entry that the program lacks would stay on
the object. client-go does the same for kubectl's older objects (``csaupgrade``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

CREATOR = "pulumi-kubernetes"
KUBECTL = "kubectl"
# It adds an annotation to the pods that restarts them; to take that away would do it again.
_ROLLOUT = "kubectl-rollout"


def by_kubectl(owners: Mapping[str, str]) -> bool:
    """Tell whether all conflicts (field → manager) are with hand edits."""
    return all(manager.startswith(KUBECTL) for manager in owners.values())


def from_creator(managed: Sequence[Mapping[str, Any]], manager: str) -> list[dict[str, Any]] | None:
    """Return ``managedFields`` with the creator's given to ``manager``, None if it has none."""
    if manager == CREATOR:
        return None
    return _handed_over(managed, manager, lambda name: name == CREATOR)


def from_kubectl(managed: Sequence[Mapping[str, Any]], manager: str) -> list[dict[str, Any]] | None:
    """Return ``managedFields`` with hand edits given to ``manager``, None if there are none.

    Metadata stays: labels and annotations that others add are theirs.
    """

    def is_edit(name: str) -> bool:
        return name.startswith(KUBECTL) and name != _ROLLOUT

    return _handed_over(managed, manager, is_edit, without={"f:metadata"})


def _handed_over(
    managed: Sequence[Mapping[str, Any]],
    manager: str,
    gives: Callable[[str], bool],
    without: frozenset[str] | set[str] = frozenset(),
) -> list[dict[str, Any]] | None:
    # Fields of a subresource (status, scale) cannot be given.
    givers = [
        entry
        for entry in managed
        if entry.get("operation") == "Update"
        and not entry.get("subresource")
        and gives(str(entry.get("manager")))
        and set(entry.get("fieldsV1") or {}) - without
    ]
    if not givers:
        return None
    own = next((entry for entry in managed if _is(entry, manager, "Apply")), None)
    fields: dict[str, Any] = dict((own or {}).get("fieldsV1") or {})
    other_entries = [dict(entry) for entry in managed if entry is not own and entry not in givers]
    for giver in givers:
        given = giver.get("fieldsV1") or {}
        fields = _union({key: value for key, value in given.items() if key not in without}, fields)
        rest = {key: value for key, value in given.items() if key in without}
        if rest:
            other_entries.append({**giver, "fieldsV1": rest})
    merged = {
        **givers[0],
        **(own or {}),
        "manager": manager,
        "operation": "Apply",
        "fieldsV1": fields,
    }
    return [merged, *other_entries]


def _is(entry: Mapping[str, Any], manager: str, operation: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == operation
        and not entry.get("subresource")
    )


def _union(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Unite two sets of fields: nested mappings whose leaves are empty mappings."""
    joined = dict(left)
    for key, value in right.items():
        joined[key] = _union(joined[key], value) if key in joined else value
    return joined
