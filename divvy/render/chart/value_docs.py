"""Every value of the chart with what it does, read from the schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NONE = object()


@dataclass(frozen=True)
class ValueDoc:
    """One key: its description, its default (as YAML has it), and the keys below it."""

    key: str
    description: str
    default: Any
    has_default: bool
    below: tuple[ValueDoc, ...]
    entry: str
    """How an entry is written where ``below`` are the keys of each; else nothing."""


def value_doc(key: str, schema: Mapping[str, Any], parts: Mapping[str, Any]) -> ValueDoc:
    """Read one property of a schema."""
    target, entry = _target(schema, parts)
    default = schema.get("default", _NONE)
    return ValueDoc(
        key,
        " ".join(str(schema.get("description") or target.get("description", "")).split()),
        None if default is _NONE else default,
        default is not _NONE,
        tuple(
            value_doc(below, part, parts) for below, part in target.get("properties", {}).items()
        ),
        entry,
    )


def walk(doc: ValueDoc, path: str = "") -> Iterator[tuple[str, ValueDoc]]:
    """Yield a knob and all below it with their paths."""
    here = f"{path}.{doc.key}" if path else doc.key
    yield here, doc
    for below in doc.below:
        yield from walk(below, here + doc.entry)


def _target(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> tuple[Mapping[str, Any], str]:
    """Follow references and alternatives to the part with keys, if there is one."""
    if "$ref" in schema:
        return _target(parts[schema["$ref"].rpartition("/")[2]], parts)
    if schema.get("properties"):
        return schema, ""
    for key, entry in (("items", "[]"), ("additionalProperties", ".<name>")):
        if isinstance(schema.get(key), Mapping):
            resolved, _ = _target(schema[key], parts)
            return (resolved, entry) if resolved.get("properties") else (schema, "")
    for choices in ("anyOf", "oneOf"):
        for choice in schema.get(choices, ()):
            resolved, entry = _target(choice, parts)
            if resolved.get("properties"):
                return resolved, entry
    return schema, ""
