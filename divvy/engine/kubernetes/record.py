"""The record of an object: its name, its uid, its field managers, and the engine's additions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.engine.errors import StepFailed
from divvy.engine.values import UNKNOWN

_ADDED = ("__fieldManager", "__inputs", "__initialApiVersion")
# Only the API server knows these; they are unknown in a preview.
_SERVER_METADATA = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


def identity_of(obj: Mapping[str, Any]) -> str:
    """Return "namespace/name", or "name" of an object without namespace; "" while unknown."""
    metadata = obj.get("metadata") or {}
    if metadata == UNKNOWN:
        return ""
    namespace, name = metadata.get("namespace"), str(metadata.get("name", ""))
    return f"{namespace}/{name}" if namespace else name


def uid_of(obj: Mapping[str, Any]) -> str:
    """Return an object's uid, "" if it is not known."""
    metadata = obj.get("metadata")
    return str(metadata.get("uid") or "") if isinstance(metadata, Mapping) else ""


def managed_fields(live: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the entries of field managers."""
    return list(live["metadata"].get("managedFields") or ())


def managers(live: Mapping[str, Any]) -> set[str]:
    """Return the names of an object's field managers."""
    return {str(fields.get("manager")) for fields in managed_fields(live)}


def written_down(manager: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is recorded with an object beside what is live."""
    return {
        "__fieldManager": manager,
        "__initialApiVersion": inputs["apiVersion"],
        "__inputs": dict(inputs),
    }


def recorded_keys(outputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return those outputs that are not the live object's."""
    return {name: outputs[name] for name in _ADDED if name in outputs}


def with_recorded_namespace(
    old: dict[str, Any], outputs: Mapping[str, Any], new: Mapping[str, Any]
) -> dict[str, Any]:
    """Return old inputs with the namespace that the object really has, if one is compared."""
    live, metadata, wanted = outputs.get("metadata"), old.get("metadata"), new.get("metadata")
    if not (
        isinstance(live, Mapping) and isinstance(metadata, Mapping) and isinstance(wanted, Mapping)
    ):
        return old
    if "namespace" not in wanted or "namespace" in metadata or "namespace" not in live:
        return old
    return {**old, "metadata": {**metadata, "namespace": live["namespace"]}}


def previewed(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object with unknowns for what only its creation reveals."""
    known = obj["metadata"]
    if known == UNKNOWN:
        return {**obj, "status": UNKNOWN}
    metadata = {**known, **dict.fromkeys(_SERVER_METADATA, UNKNOWN)}
    return {**obj, "metadata": metadata, "status": UNKNOWN}


def exists_already(live: Mapping[str, Any]) -> StepFailed:
    """Return the refusal to take over an object that the stack has not created."""
    creators = ", ".join(sorted(managers(live)))
    by = f" (created by {creators})" if creators else ""
    return StepFailed(
        f"{identity_of(live)} already exists{by}: delete it, or give the "
        "resource another name; if the program has renamed a resource, give it an alias"
    )
