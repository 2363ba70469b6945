"""Compare Kubernetes objects: what changed, what cannot change in place, what drifted."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from divvy.engine.property_path import below, changed_paths, joined, parse, value_at
from divvy.engine.values import UNKNOWN

# Fields the API refuses to change, by kind (Kubernetes API reference); "*": of every kind.
_IMMUTABLE = {
    "*": ("kind", "metadata.name", "metadata.namespace"),
    "DaemonSet": ("spec.selector",),
    "Deployment": ("spec.selector",),
    "Service": ("spec.clusterIP",),
    "RoleBinding": ("roleRef",),
    "ClusterRoleBinding": ("roleRef",),
    "RuntimeClass": ("handler",),
    "PriorityClass": ("value", "preemptionPolicy"),
    "ResourceClaimTemplate": ("spec",),
    "ResourceQuota": ("spec.scopes", "spec.scopeSelector"),
    "Secret": ("type",),
}
_DATA = ("data", "binaryData")
_QUANTITIES = {"requests", "limits", "capacity", "hard", "overhead", "sizeLimit"}
_SUFFIXES = {
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
    **{"": Decimal(1), "m": Decimal("1e-3"), "u": Decimal("1e-6"), "n": Decimal("1e-9")},
}
_QUANTITY = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+))([A-Za-z]*)")


def normalised(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object as the API server keeps it.

    A Secret's stringData is part of its data. The rules of a ClusterRole that aggregates others
    are its controller's. Empty labels and annotations are none.
    """
    normal = dict(inputs)
    metadata = normal.get("metadata")
    if isinstance(metadata, Mapping):
        normal["metadata"] = {
            key: value
            for key, value in metadata.items()
            if value != {} or key not in ("labels", "annotations")
        }
    if normal.get("kind") == "ClusterRole" and normal.get("aggregationRule"):
        normal.pop("rules", None)
    text = normal.get("stringData")
    if normal.get("kind") == "Secret" and isinstance(text, Mapping):
        del normal["stringData"]
        encoded = {
            key: value if value == UNKNOWN else base64.b64encode(_plain(value)).decode()
            for key, value in text.items()
        }
        data = normal.get("data")
        normal["data"] = {**(data if isinstance(data, Mapping) else {}), **encoded}
    return normal


def object_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the paths at which two objects differ; "1000m" and "1" are one quantity."""
    return tuple(
        path
        for path in changed_paths(old, new)
        if not _same_quantity(path, value_at(old, path), value_at(new, path))
    )


def replacing_paths(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    changed: tuple[str, ...],
    *,
    config_map: bool,
    secret: bool,
) -> tuple[str, ...]:
    """Return those of the changed paths that force a replacement.

    ``config_map`` and ``secret`` say whether the data of these kinds may change in
    place (the provider's enableConfigMapMutable and enableSecretMutable).
    """
    kind = str(new.get("kind"))
    fixed = [*_IMMUTABLE["*"], *_IMMUTABLE.get(kind, ())]
    data_fixed = (kind == "ConfigMap" and not config_map) or (kind == "Secret" and not secret)
    if data_fixed:
        fixed.extend(_DATA)
    if kind in ("ConfigMap", "Secret") and old.get("immutable"):
        fixed.extend((*_DATA, "immutable"))
    if _group(old) != _group(new):
        fixed.append("apiVersion")
    return tuple(path for path in changed if any(below(path, root) for root in fixed))


def drifted_paths(inputs: Any, recorded: Any, live: Any, path: str = "") -> Iterator[str]:
    """Yield paths of ``inputs`` whose live value is no longer the recorded one.

    Recorded and live are both as the API server wrote them, so that its own
    normalisation ("1000m" → "1") is no drift. An empty list or map claims nothing: a
    controller may fill it.
    """
    if inputs in ([], {}):
        return
    if isinstance(inputs, Mapping) and isinstance(recorded, Mapping) and isinstance(live, Mapping):
        for key in sorted(inputs):
            inner = joined(path, key)
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
                inner = joined(path, index)
                yield from drifted_paths(inputs[index], recorded[index], live[index], inner)
    elif recorded != live:
        yield path


def longer_lists(inputs: Any, live: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of lists that have entries which ``inputs`` lack.

    Server-side apply leaves the entries that another manager owns. An empty list claims nothing.
    """
    if isinstance(inputs, Mapping) and isinstance(live, Mapping):
        for key in sorted(inputs):
            yield from longer_lists(inputs[key], live.get(key), joined(path, key))
    elif isinstance(inputs, list) and isinstance(live, list):
        if inputs and len(live) > len(inputs):
            yield path
        for index, (wanted, present) in enumerate(zip(inputs, live, strict=False)):
            yield from longer_lists(wanted, present, joined(path, index))


def projected(inputs: Any, recorded: Any, live: Any) -> Any:
    """Return ``inputs`` with the live values where these are no longer the recorded ones."""
    if recorded == live:
        return inputs
    if isinstance(inputs, Mapping) and isinstance(live, Mapping):
        was = recorded if isinstance(recorded, Mapping) else {}
        # What the server never kept (an empty map) is as the program gave it.
        return {
            key: projected(inputs[key], was.get(key), live.get(key))
            for key in inputs
            if key in live or key not in was
        }
    if isinstance(inputs, list) and isinstance(live, list) and len(inputs) == len(live):
        alike = isinstance(recorded, list) and len(recorded) == len(live)
        known = recorded if alike else [None] * len(live)
        trios = zip(inputs, known, live, strict=True)
        return [projected(*trio) for trio in trios]
    return live


def _plain(value: Any) -> bytes:
    """Return a text of stringData; the API server takes null for an empty one."""
    return b"" if value is None else str(value).encode()


def _group(obj: Mapping[str, Any]) -> str:
    group, slash, _ = str(obj.get("apiVersion")).partition("/")
    return group if slash else ""


def _same_quantity(path: str, old: Any, new: Any) -> bool:
    if not _QUANTITIES.intersection(parse(path)):
        return False
    known = _quantity(old)
    return known is not None and known == _quantity(new)


def _quantity(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    match = _QUANTITY.fullmatch(str(value))
    if match is None or match[2] not in _SUFFIXES:
        return None
    return Decimal(match[1]) * _SUFFIXES[match[2]]
