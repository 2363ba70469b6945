"""The annotations by which a program tells the provider how to treat an object."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from divvy.engine.errors import NotSupported
from divvy.engine.values import UNKNOWN

AUTONAMED = "pulumi.com/autonamed"


def is_true(value: Any) -> bool:
    """Tell whether an annotation, or an option, is switched on."""
    return value is True or value == "true"


def is_forced(inputs: Mapping[str, Any]) -> bool:
    """Tell whether an object takes fields over from every other manager."""
    annotations = inputs["metadata"].get("annotations") or {}
    return is_true(annotations.get("pulumi.com/patchForce"))


def is_autonamed(inputs: Mapping[str, Any]) -> bool:
    """Tell whether the engine has named an object."""
    metadata = inputs.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return isinstance(annotations, Mapping) and AUTONAMED in annotations


def patience_of(inputs: Mapping[str, Any], default: float) -> float | None:
    """Return how many seconds to wait for an object, None for not at all; raises NotSupported.

    The program says so, and not who else annotates the object.
    """
    annotations = (inputs.get("metadata") or {}).get("annotations") or {}
    if is_true(annotations.get("pulumi.com/skipAwait")):
        return None
    return timeout_of(annotations, default)


def timeout_of(annotations: Mapping[str, Any], default: float) -> float:
    """Return how long to wait for an object, in seconds; raises NotSupported."""
    text = annotations.get("pulumi.com/timeoutSeconds", default)
    if text == UNKNOWN:
        return default
    try:
        seconds = float(text)
    except (TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:  # "nan" would never be over
        raise NotSupported(
            f"the annotation pulumi.com/timeoutSeconds is {text!r}: write a number of seconds"
        )
    return seconds
