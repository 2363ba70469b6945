"""What a deployment would change in the cluster: a function of objects as they are and would be."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from divvy.kube.kind import kind_named

# Helm adds these to every object of a release.
_MANAGED_BY = "app.kubernetes.io/managed-by"
_RELEASE, _NAMESPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
# The API server's own, which differ after every write.
_OF_SERVER = frozenset({"managedFields", "resourceVersion", "generation", "creationTimestamp"})
_COUNTED = "deprecated.daemonset.template.generation"
ABSENT = "(absent)"
KUBECTL = "kubectl"
# The managers of Pulumi's provider begin with it.
PULUMI = "pulumi"


class Action(StrEnum):
    """What happens to an object."""

    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"


@dataclass(frozen=True, order=True)
class ObjectName:
    """An object's kind, namespace ("" for none) and name; two versions of it are one object."""

    kind: str
    namespace: str
    name: str
    api_version: str = field(compare=False)

    @classmethod
    def of(cls, obj: Mapping[str, Any]) -> Self:
        """Return the name of an object of the API or of a manifest."""
        metadata = obj["metadata"]
        namespace = str(metadata.get("namespace") or "")
        return cls(str(obj["kind"]), namespace, str(metadata["name"]), str(obj["apiVersion"]))

    @property
    def path(self) -> str:
        """Return the path of the object in the API."""
        return kind_named(self.api_version, self.kind).path(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True)
class FieldChange:
    """A field of an object, and its values before and after."""

    path: str
    before: Any
    after: Any


@dataclass(frozen=True)
class Change:
    """A change of one object; ``managers`` own fields that it overwrites, by field."""

    action: Action
    name: ObjectName
    fields: tuple[FieldChange, ...] = ()
    managers: Mapping[str, str] | None = None

    @property
    def conflicts(self) -> dict[str, str]:
        """Return the fields of managers other than kubectl, whose edits are repaired, and Pulumi.

        What Pulumi applies is only changed where it is taken over.
        """
        return {
            field: manager
            for field, manager in (self.managers or {}).items()
            if not manager.startswith((KUBECTL, PULUMI))
        }


@dataclass(frozen=True)
class Release:
    """The name of a release and the namespace in which Helm records it."""

    name: str
    namespace: str

    def owns(self, obj: Mapping[str, Any]) -> bool:
        """Return whether an object of the API belongs to this release, as Helm decides it."""
        return owner(obj) == self


def owner(obj: Mapping[str, Any]) -> Release | None:
    """Return the release that an object of the API belongs to, None for none.

    What Pulumi applies is Pulumi's, though it came from a release and still has its marks.
    """
    metadata = obj["metadata"]
    if is_pulumis(obj):
        return None
    annotations = metadata.get("annotations") or {}
    if (metadata.get("labels") or {}).get(_MANAGED_BY) != "Helm" or _RELEASE not in annotations:
        return None
    return Release(annotations[_RELEASE], annotations.get(_NAMESPACE, ""))


def is_pulumis(obj: Mapping[str, Any]) -> bool:
    """Return whether Pulumi applies an object of the API."""
    entries = obj["metadata"].get("managedFields") or ()
    return any(str(entry.get("manager")).startswith(PULUMI) for entry in entries)


def as_released(obj: Mapping[str, Any], release: Release) -> dict[str, Any]:
    """Return an object with what Helm adds to those of a release."""
    metadata = obj["metadata"]
    return {
        **obj,
        "metadata": {
            **metadata,
            "labels": {**(metadata.get("labels") or {}), _MANAGED_BY: "Helm"},
            "annotations": {
                **(metadata.get("annotations") or {}),
                _RELEASE: release.name,
                _NAMESPACE: release.namespace,
            },
        },
    }


def update_of(
    live: Mapping[str, Any], applied: Mapping[str, Any], managers: Mapping[str, str]
) -> Change | None:
    """Return the change from an object to what an apply makes of it, None for none."""
    fields = tuple(field_changes(_without_status(live), _without_status(applied)))
    if not fields:
        return None
    return Change(Action.UPDATE, ObjectName.of(live), fields, dict(managers) or None)


def _without_status(obj: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {key: value for key, value in obj["metadata"].items() if key not in _OF_SERVER}
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {k: v for k, v in annotations.items() if k != _COUNTED}
    return {key: value for key, value in obj.items() if key != "status"} | {"metadata": metadata}


def field_changes(before: Any, after: Any, path: str = "") -> Iterator[FieldChange]:
    """Yield the fields that differ, each at the deepest place that tells them apart."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in sorted({*before, *after}, key=str):
            inner = f"{path}.{key}" if path else str(key)
            yield from field_changes(before.get(key, ABSENT), after.get(key, ABSENT), inner)
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from field_changes(old, new, f"{path}[{at}]")
    elif before != after:
        yield FieldChange(path, before, after)


def removed(
    recorded: Iterable[Mapping[str, Any]], desired: Sequence[Mapping[str, Any]]
) -> list[ObjectName]:
    """Return the objects that records name and that are no longer desired, without repeats."""
    kept = {ObjectName.of(obj) for obj in desired}
    return [*dict.fromkeys(name for obj in recorded if (name := ObjectName.of(obj)) not in kept)]
