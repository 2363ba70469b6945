"""Compare Kubernetes objects: what changed, what cannot change in place, what drifted."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

# Fields the API refuses to change, by kind (Kubernetes API reference); "*": of every kind.
_IMMUTABLE = {
    "*": ("apiVersion", "kind", "metadata.name", "metadata.namespace"),
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "ReplicaSet": ("spec.selector",),
    "StatefulSet": ("spec.selector", "spec.serviceName", "spec.volumeClaimTemplates"),
    "Job": ("spec.selector", "spec.template", "spec.completions", "spec.completionMode"),
    "Pod": ("spec",),
    "Service": ("spec.clusterIP",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "RuntimeClass": ("handler",),
    "PriorityClass": ("value", "preemptionPolicy"),
    "StorageClass": ("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
    "PersistentVolumeClaim": ("spec.storageClassName", "spec.accessModes", "spec.volumeName"),
}
_DATA = ("data", "binaryData", "stringData", "immutable")


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two values differ, the deepest that name the change."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            inner = f"{path}.{key}" if path else str(key)
            if key not in old or key not in new:
                yield inner
            else:
                yield from changed_paths(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from changed_paths(one, other, f"{path}[{index}]")
    elif old != new:
        yield path


def replacing_paths(
    obj: Mapping[str, Any], changed: tuple[str, ...], *, config_map: bool, secret: bool
) -> tuple[str, ...]:
    """Return those of the changed paths that force a replacement.

    ``config_map`` and ``secret`` say whether the data of these kinds may change in
    place (the provider's enableConfigMapMutable and enableSecretMutable).
    """
    kind = str(obj.get("kind"))
    fixed = [*_IMMUTABLE["*"], *_IMMUTABLE.get(kind, ())]
    data_fixed = (kind == "ConfigMap" and not config_map) or (kind == "Secret" and not secret)
    if data_fixed or (kind in ("ConfigMap", "Secret") and obj.get("immutable")):
        fixed.extend(_DATA)
    if kind == "Secret":
        fixed.append("type")
    return tuple(path for path in changed if any(below(path, root) for root in fixed))


def below(path: str, root: str) -> bool:
    """Tell whether a path is ``root`` or lies below it."""
    return path == root or path.startswith((f"{root}.", f"{root}["))


def drifted_paths(inputs: Any, recorded: Any, live: Any, path: str = "") -> Iterator[str]:
    """Yield paths of ``inputs`` whose live value is not the recorded one any more.

    Recorded and live are both as the API server wrote them, so that its own
    normalisation ("1000m" → "1") is no drift.
    """
    if isinstance(inputs, Mapping) and isinstance(recorded, Mapping) and isinstance(live, Mapping):
        for key in sorted(inputs):
            inner = f"{path}.{key}" if path else str(key)
            if key in recorded:
                if key in live:
                    yield from drifted_paths(inputs[key], recorded[key], live[key], inner)
                else:
                    yield inner
    elif isinstance(inputs, list) and isinstance(recorded, list) and isinstance(live, list):
        if len(recorded) != len(live):
            yield path
        else:
            for index in range(min(len(inputs), len(recorded))):
                inner = f"{path}[{index}]"
                yield from drifted_paths(inputs[index], recorded[index], live[index], inner)
    elif recorded != live:
        yield path


def projected(inputs: Any, live: Any) -> Any:
    """Return the live values at the paths of ``inputs``: what refreshing makes of them."""
    if isinstance(inputs, Mapping) and isinstance(live, Mapping):
        return {key: projected(inputs[key], live[key]) for key in inputs if key in live}
    if isinstance(inputs, list) and isinstance(live, list) and len(inputs) == len(live):
        return [projected(one, other) for one, other in zip(inputs, live, strict=True)]
    return live


def without(value: Any, ignored: tuple[str, ...], old: Any) -> Any:
    """Return ``value`` with the ignored property paths taken from ``old``."""
    for path in ignored:
        keys = [found for found in re.split(r"[.\[\]\"]+", path) if found]
        value = _replaced(value, keys, old)
    return value


def _replaced(value: Any, keys: list[str], old: Any) -> Any:
    if not keys or not isinstance(value, Mapping):
        return old if not keys else value
    head, rest = keys[0], keys[1:]
    changed = dict(value)
    known = isinstance(old, Mapping) and head in old
    if not rest and not known:
        changed.pop(head, None)
    elif known:
        changed[head] = _replaced(value.get(head, {}), rest, old[head])
    return changed
