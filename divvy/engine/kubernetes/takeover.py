"""Objects that the official provider created: their fields pass to the server-side manager.

It creates by POST (manager ``pulumi-kubernetes``, operation Update) and changes by server-side
apply under the manager that it recorded. Until the first manager's fields are handed over, an
apply conflicts with it, and a field that leaves the program would stay on the object. client-go
does the same for kubectl's older objects (``csaupgrade``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

CREATOR = "pulumi-kubernetes"


def handed_over(managed: Sequence[Mapping[str, Any]], manager: str) -> list[dict[str, Any]] | None:
    """Return ``managedFields`` with the creator's fields given to ``manager``, None if it has none.

    Fields of a subresource (status) are not the creator's to give.
    """
    creator = next((one for one in managed if _is(one, CREATOR, "Update")), None)
    if creator is None or manager == CREATOR:
        return None
    own = next((one for one in managed if _is(one, manager, "Apply")), None)
    fields = _union(creator.get("fieldsV1") or {}, (own or {}).get("fieldsV1") or {})
    merged = {
        **creator,
        **(own or {}),
        "manager": manager,
        "operation": "Apply",
        "fieldsV1": fields,
    }
    return [merged, *(dict(one) for one in managed if one is not creator and one is not own)]


def _is(entry: Mapping[str, Any], manager: str, operation: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == operation
        and not entry.get("subresource")
    )


def _union(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Unite two sets of fields: nested mappings whose leaves are empty mappings."""
    joined = dict(one)
    for key, value in other.items():
        joined[key] = _union(joined[key], value) if key in joined else value
    return joined
