"""The annotations by which a program tells the provider how to treat an object."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.engine.errors import NotSupported
from divvy.engine.urn import urn_name, urn_type
from divvy.engine.values import UNKNOWN

AUTONAMED = "pulumi.com/autonamed"
_REFUSED = (
    "pulumi.com/waitFor",
    "pulumi.com/patchFieldManager",
    "pulumi.com/replaceUnready",
)


def is_true(value: Any) -> bool:
    """Tell whether an annotation, or an option, is switched on."""
    return value is True or value == "true"


def is_forced(inputs: Mapping[str, Any]) -> bool:
    """Tell whether an object takes fields over from other managers."""
    annotations = inputs["metadata"].get("annotations") or {}
    return is_true(annotations.get("pulumi.com/patchForce"))


def is_autonamed(inputs: Mapping[str, Any]) -> bool:
    """Tell whether the engine has named an object."""
    metadata = inputs.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return isinstance(annotations, Mapping) and AUTONAMED in annotations


def timeout_of(annotations: Mapping[str, Any], default: float) -> float:
    """Return how long an object is waited for, in seconds; raises NotSupported."""
    text = annotations.get("pulumi.com/timeoutSeconds", default)
    try:
        return default if text == UNKNOWN else float(text)
    except (TypeError, ValueError):
        raise NotSupported(
            f"the annotation pulumi.com/timeoutSeconds is {text!r}: write a number of seconds"
        ) from None


def check_supported(urn: str, inputs: Mapping[str, Any], metadata: Mapping[str, Any]) -> None:
    """Raise NotSupported for what would be done otherwise than the program says."""
    name = urn_name(urn)
    kind = urn_type(urn).rsplit(":", 1)[-1]
    if kind == f"{inputs.get('kind')}Patch":
        raise NotSupported(
            f"{name}: {kind} is not supported: the engine makes whole objects, and would delete "
            "what it has only patched"
        )
    if not inputs.get("apiVersion") or not inputs.get("kind"):
        raise NotSupported(f"{name}: the resource type {urn_type(urn)} is not supported")
    if metadata.get("generateName"):
        raise NotSupported(
            f"{name}: metadata.generateName is not supported: leave out the name, and one is made"
        )
    annotations = metadata.get("annotations")
    for key in annotations if isinstance(annotations, Mapping) else ():
        if key in _REFUSED:
            raise NotSupported(f"{name}: the annotation {key} is not supported")
    if isinstance(annotations, Mapping):
        timeout_of(annotations, 0.0)
