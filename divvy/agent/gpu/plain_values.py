"""Dataclasses from plain JSON values, also from those of a newer agent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

_Kind = TypeVar("_Kind")


def from_plain(kind: type[_Kind], raw: Mapping[str, Any], **values: Any) -> _Kind:
    """Build a dataclass of fields in ``raw``, or of ``values`` instead; raises TypeError.

    What the kind does not have is a newer agent's, from before its release was taken back.
    """
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return kind(**{**{name: raw[name] for name in known & raw.keys()}, **values})
