"""Objects as YAML text with template actions in it, as a person would write a chart."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_PLAIN = re.compile(r"[A-Za-z/]([A-Za-z0-9 ./_-]*[A-Za-z0-9./_-])?|\d+(ms|s|m|h|Mi|Gi|Ti)")
_RESERVED = {"true", "false", "yes", "no", "on", "off", "y", "n", "null"}
_FLOW_WIDTH = 60
_FOLD_WIDTH = 88


@dataclass(frozen=True)
class Expression:
    """A scalar that a template writes."""

    text: str


@dataclass(frozen=True)
class Lines:
    """Lines that a template writes at this depth; ``%d`` in it becomes the depth."""

    text: str


@dataclass(frozen=True)
class Conditional:
    """A value of a mapping, or an item of a list, that is there only if an action says so."""

    opening: str
    node: Any


def yaml_text(node: Mapping[str, Any], depth: int = 0) -> str:
    """Return a mapping as block YAML."""
    return "\n".join(_mapping(node, depth)) + "\n"


def scalar(value: object) -> str:
    """Return a scalar that every YAML reader takes for what it is."""
    if isinstance(value, Expression):
        return value.text
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.casefold() not in _RESERVED
        return value if plain else _escaped(_quoted(value))
    return json.dumps(value)


def flow(value: object) -> str:
    """Return a value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{scalar(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return scalar(value)


def _quoted(text: str) -> str:
    """Quote a text; YAML would break lines at, or refuse, what cannot be printed."""
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(
        character if character.isprintable() else f"\\U{ord(character):08x}" for character in quoted
    )


def _escaped(text: str) -> str:
    """Keep what looks like an action, such as a label in an alert's text, from being run."""
    return text.replace("{{", '{{ "{{" }}')


def _mapping(node: Mapping[str, Any], depth: int) -> Iterator[str]:
    space = " " * depth
    for key, value in node.items():
        if isinstance(value, Conditional):
            yield f"{space}{{{{- {value.opening} }}}}"
            yield from _mapping({key: value.node}, depth)
            yield f"{space}{{{{- end }}}}"
        elif not key and isinstance(value, Lines):
            yield from _lines(value, depth)
        else:
            yield from _entry(f"{space}{scalar(key)}:", value, depth)


def _entry(head: str, value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, Lines):
        yield head
        yield from _lines(value, depth + 2)
    elif isinstance(value, Mapping) and value:
        yield head
        yield from _mapping(value, depth + 2)
    elif isinstance(value, Sequence) and not isinstance(value, str) and value:
        text = flow(value) if all(isinstance(item, str | int) for item in value) else ""
        if text and len(head) + len(text) < _FLOW_WIDTH + depth:
            yield f"{head} {text}"
        else:
            yield head
            yield from _items(value, depth + 2)
    elif isinstance(value, str) and len(value) > _FOLD_WIDTH and _folds(value):
        yield f"{head} >-"
        yield from _folded(value, depth + 2)
    else:
        yield f"{head} {flow(value)}"


def _items(node: Sequence[Any], depth: int) -> Iterator[str]:
    space = " " * depth
    for item in node:
        if isinstance(item, Conditional):
            yield f"{space}{{{{- {item.opening} }}}}"
            yield from _items([item.node], depth)
            yield f"{space}{{{{- end }}}}"
        elif isinstance(item, Mapping) and item:
            first, *rest = _mapping(item, depth + 2)
            yield f"{space}- {first.strip()}"
            yield from rest
        else:
            yield f"{space}- {flow(item)}"


def _lines(value: Lines, depth: int) -> Iterator[str]:
    for line in value.text.replace("%d", str(depth)).splitlines():
        yield " " * depth + line if line else ""


def _folds(text: str) -> bool:
    """Return whether folding keeps a text as it is, and reads it before any template does."""
    return "  " not in text and "\n" not in text and "{{" not in text and text.strip() == text


def _folded(text: str, depth: int) -> Iterator[str]:
    line = ""
    for word in text.split(" "):
        if line and depth + len(line) + 1 + len(word) > _FOLD_WIDTH:
            yield " " * depth + line
            line = word
        else:
            line = f"{line} {word}" if line else word
    yield " " * depth + line
