"""Reads objects of a cluster one by one: one that cannot be read is named, and stops nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from divvy.model.problems import printable

_Value = TypeVar("_Value")
Note = Callable[[str], None]
UNREADABLE = (
    *(ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError),
    StopIteration,
)
"""Errors that reading an object of another shape ends with."""


def ignore(_note: str) -> None:
    """Take a note for which nobody asked."""


def readable(
    objects: Iterable[Mapping[str, Any]], read: Callable[[Mapping[str, Any]], _Value], note: Note
) -> Iterator[_Value]:
    """Yield what is read of each object; note those that cannot be read, and leave them out."""
    for obj in objects:
        try:
            value = read(obj)
        except UNREADABLE as error:
            note(f"{full_name(obj)} cannot be read and is left out: {problem(error)}")
        else:
            yield value


def key_of(obj: Mapping[str, Any]) -> tuple[str, str]:
    """Return the namespace and name of an object."""
    return obj["metadata"].get("namespace") or "", obj["metadata"]["name"]


def full_name(obj: object) -> str:
    """Return ``namespace/name`` of an object, as far as it has them."""
    if not isinstance(obj, Mapping):
        return "an object"
    metadata = obj.get("metadata")
    metadata = metadata if isinstance(metadata, Mapping) else {}
    words = (str(metadata[key]) for key in ("namespace", "name") if metadata.get(key))
    return printable("/".join(words)) or "an object without a name"


def problem(error: Exception) -> str:
    """Return in words why an object could not be read."""
    if isinstance(error, KeyError):
        return f"it has no {printable(str(error.args[0]))}"
    return printable(str(error)) or type(error).__name__
