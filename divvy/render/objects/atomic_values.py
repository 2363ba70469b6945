"""Values that the API server compares as one, with the defaults that it sets in them.

Without the defaults they are other values than the server's, and the next engine that applies them
is told of a conflict with the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def match_constraints(
    group: str, *resources: str, operations: Sequence[str] = ("CREATE",)
) -> dict[str, Any]:
    """Return the constraints of an admission policy over resources of one group's v1.

    Most policies look at new objects: what they read of one never changes after its creation.
    """
    rule = {
        "apiGroups": [group],
        "apiVersions": ["v1"],
        "operations": list(operations),
        "resources": list(resources),
        "scope": "*",
    }
    return {
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "resourceRules": [rule],
    }


def variables_of_pod(paths: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return a container's variables whose values are fields of its pod, by name."""
    return [
        {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}}
        for name, path in paths.items()
    ]
