"""The desired state of one resource: a RegisterResource request as a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from divvy.engine.errors import NotSupported
from divvy.engine.property_path import parse
from divvy.engine.subset import LEADS_ON, Declaration
from divvy.engine.urn import make_urn
from divvy.engine.values import from_struct, has_asset

_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}
_DURATION_PART = re.compile(r"([0-9]+\.?[0-9]*|\.[0-9]+)(ms|s|m|h|\Z)")


@dataclass(frozen=True)
class Goal:
    """A resource as the program registered it; ``aliases`` are URNs it may have had before."""

    urn: str
    type: str
    name: str
    custom: bool
    inputs: Mapping[str, Any]
    parent: str = ""
    provider: str = ""
    version: str = ""
    dependencies: tuple[str, ...] = ()
    property_dependencies: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    protect: bool = False
    ignore_changes: tuple[str, ...] = ()
    delete_before_replace: bool | None = None
    additional_secret_outputs: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    timeouts: Mapping[str, float] = field(default_factory=dict)
    providers: Mapping[str, str] = field(default_factory=dict)


def goal_from(request: Any, stack: str, project: str) -> Goal:
    """Read a request; raises NotSupported for everything outside the subset, by name."""
    inputs = from_struct(request.object)
    for text in _declared(request, inputs).refusals():
        raise NotSupported(text)
    for path in request.ignoreChanges:
        try:
            parse(path)
        except ValueError as error:
            raise NotSupported(str(error)) from None
    if has_asset(inputs):
        raise NotSupported(f"an asset or archive as input {LEADS_ON}")
    urn = make_urn(stack, project, request.parent, request.type, request.name)
    before_replace = request.deleteBeforeReplace if request.deleteBeforeReplaceDefined else None
    return Goal(
        urn=urn,
        type=request.type,
        name=request.name,
        custom=request.custom,
        inputs=inputs,
        parent=request.parent,
        provider=request.provider,
        version=request.version,
        dependencies=tuple(sorted(set(request.dependencies))),
        property_dependencies={
            key: tuple(value.urns) for key, value in sorted(request.propertyDependencies.items())
        },
        protect=request.protect,
        ignore_changes=tuple(request.ignoreChanges),
        delete_before_replace=before_replace,
        additional_secret_outputs=tuple(request.additionalSecretOutputs),
        aliases=tuple(_aliases(request, stack, project)),
        timeouts={
            name: seconds(getattr(request.customTimeouts, name))
            for name in ("create", "update", "delete")
            if getattr(request.customTimeouts, name)
        },
        providers=dict(request.providers),
    )


def _declared(request: Any, inputs: Mapping[str, Any]) -> Declaration:
    options = {
        "import_": bool(request.importId),
        "remote": request.remote,
        "transforms": bool(request.transforms),
        "replace_with": bool(request.replace_with),
        "replace_on_changes": bool(request.replaceOnChanges),
        "retain_on_delete": request.retainOnDelete,
        "deleted_with": bool(request.deletedWith),
        "env_var_mappings": bool(request.envVarMappings),
        "hide_diffs": bool(request.hideDiffs),
        "plugin_download_url": bool(request.pluginDownloadURL),
        "state_migrations": bool(request.state_migrations),
        "hooks": any(bool(value) for _, value in request.hooks.ListFields()),
        "replacement_trigger": request.replacement_trigger.WhichOneof("kind")
        not in (None, "null_value"),
    }
    metadata = inputs.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    annotations = metadata.get("annotations")
    return Declaration(
        request.type,
        request.name,
        options=frozenset(name for name, given in options.items() if given),
        inputs=frozenset(inputs),
        metadata=frozenset(metadata),
        annotations=frozenset(annotations if isinstance(annotations, dict) else ()),
        component=not request.custom,
    )


def _aliases(request: Any, stack: str, project: str) -> list[str]:
    urns = list(request.aliasURNs)
    for alias in request.aliases:
        if alias.urn:
            urns.append(alias.urn)
            continue
        spec = alias.spec
        parent = "" if spec.noParent else spec.parentUrn or request.parent
        urns.append(
            make_urn(
                spec.stack or stack,
                spec.project or project,
                parent,
                spec.type or request.type,
                spec.name or request.name,
            )
        )
    return urns


def seconds(text: str) -> float:
    """Return a Go duration ("1h2m3s", "500ms") in seconds; raises NotSupported."""
    total, position = 0.0, 0
    while position < len(text):
        part = _DURATION_PART.match(text, position)
        if part is None:
            raise NotSupported(f"{text!r} is not a duration: write 90s, 5m or 1h30m")
        total, position = total + float(part[1]) * _UNITS[part[2]], part.end()
    return total
