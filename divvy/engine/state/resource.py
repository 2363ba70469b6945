"""One resource of a stack as the checkpoint records it (deployment schema version 3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from divvy.engine.urn import provider_reference, split_provider_reference


@dataclass(frozen=True)
class ResourceState:
    """A resource of a stack.

    ``inputs`` and ``outputs`` carry secret marks. ``rest`` holds all other
    fields, which are written back as they were read: of the official format, and of this engine.
    """

    urn: str
    type: str
    custom: bool
    id: str = ""
    inputs: Mapping[str, Any] = field(default_factory=dict)
    outputs: Mapping[str, Any] = field(default_factory=dict)
    parent: str = ""
    provider: str = ""
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    protect: bool = False
    external: bool = False
    delete: bool = False
    init_errors: tuple[str, ...] = ()
    retain_on_delete: bool = False
    additional_secret_outputs: tuple[str, ...] = ()
    custom_timeouts: Mapping[str, float] = field(default_factory=dict)
    created: str = ""
    modified: str = ""
    rest: Mapping[str, Any] = field(default_factory=dict)


# (attribute, name in the checkpoint), in the order in which they are written.
_FIELDS = (
    ("urn", "urn"),
    ("custom", "custom"),
    ("delete", "delete"),
    ("id", "id"),
    ("type", "type"),
    ("inputs", "inputs"),
    ("outputs", "outputs"),
    ("parent", "parent"),
    ("protect", "protect"),
    ("external", "external"),
    ("dependencies", "dependencies"),
    ("init_errors", "initErrors"),
    ("provider", "provider"),
    ("property_dependencies", "propertyDependencies"),
    ("additional_secret_outputs", "additionalSecretOutputs"),
    ("custom_timeouts", "customTimeouts"),
    ("retain_on_delete", "retainOnDelete"),
    ("created", "created"),
    ("modified", "modified"),
)
_URN_SEPARATORS = 3
_ALWAYS = {"urn", "custom", "type"}
_KNOWN = {name for _, name in _FIELDS}


def resource_to_json(resource: ResourceState) -> dict[str, Any]:
    """Render a resource; empty fields are left out as the official engine does."""
    rendered: dict[str, Any] = {}
    for attribute, name in _FIELDS:
        value = getattr(resource, attribute)
        if value or name in _ALWAYS:
            rendered[name] = list(value) if isinstance(value, tuple) else value
    if resource.property_dependencies:
        dependencies = resource.property_dependencies.items()
        rendered["propertyDependencies"] = {key: list(urns) for key, urns in dependencies}
    rendered.update(resource.rest)
    return rendered


def resource_from_json(raw: Mapping[str, Any]) -> ResourceState:
    """Read a resource; raises KeyError, TypeError or ValueError if it is not one."""
    if str(raw["urn"]).count("::") < _URN_SEPARATORS:
        raise ValueError(f"{raw['urn']!r} is not a URN")
    values: dict[str, Any] = {}
    for attribute, name in _FIELDS:
        if name not in raw or raw[name] is None:
            continue
        value = raw[name]
        if attribute == "property_dependencies":
            value = {key: tuple(urns or ()) for key, urns in value.items()}
        elif isinstance(value, list):
            value = tuple(value)
        values[attribute] = value
    values.setdefault("custom", False)
    rest = {name: value for name, value in raw.items() if name not in _KNOWN}
    return ResourceState(rest=rest, **{"urn": raw["urn"], "type": raw["type"], **values})


def now() -> str:
    """Return the time as the checkpoint writes it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def renamed(resource: ResourceState, before: str, after: str) -> ResourceState:
    """Return a resource after an alias: what had the URN ``before``, or names it, has ``after``."""

    def follow(urn: str) -> str:
        return after if urn == before else urn

    provider = resource.provider
    if provider:
        urn, identity = split_provider_reference(provider)
        provider = provider_reference(follow(urn), identity)
    return replace(
        resource,
        urn=follow(resource.urn),
        parent=follow(resource.parent),
        provider=provider,
        dependencies=tuple(follow(urn) for urn in resource.dependencies),
        property_dependencies={
            key: tuple(follow(urn) for urn in urns)
            for key, urns in resource.property_dependencies.items()
        },
    )
