"""Property paths as Pulumi writes them: ``spec.containers[*].image``, ``data["a.b"]``.

A key that holds a dot, a bracket or a quote stands in brackets and quotes. ``*``
stands for every key or every index.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Path = tuple[str | int, ...]
_PART = re.compile(r'\.?([^.\[\]"]+)|\[(\d+|\*)\]|\["((?:[^"\\]|\\.)*)"\]')
_PLAIN = re.compile(r'[^.\[\]"*]+')
_ABSENT = object()


def parse(text: str) -> Path:
    """Return the keys and indices of a path; raises ValueError saying what is wrong."""
    keys: list[str | int] = []
    position = 0
    while position < len(text):
        match = _PART.match(text, position)
        if match is None or (text[position] == "." and position == 0):
            raise ValueError(f"the property path {text!r} cannot be read at {text[position:]!r}")
        plain, index, quoted = match.groups()
        if plain is not None:
            if position > 0 and text[position] != ".":
                raise ValueError(f"the property path {text!r} lacks a dot at {text[position:]!r}")
            keys.append(plain)
        elif index is not None:
            keys.append("*" if index == "*" else int(index))
        else:
            keys.append(json.loads(f'"{quoted}"'))
        position = match.end()
    if not keys:
        raise ValueError("a property path is empty")
    return tuple(keys)


def joined(path: str, key: str | int) -> str:
    """Return the path of a key, or of an index, below a path."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    if not _PLAIN.fullmatch(key):
        return f"{path}[{json.dumps(key)}]"
    return f"{path}.{key}" if path else key


def below(path: str, root: str) -> bool:
    """Tell whether a path is ``root`` or lies below it."""
    return path == root or path.startswith((f"{root}.", f"{root}["))


def changed_paths(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two values differ, the deepest that name the change."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in sorted({*old, *new}):
            inner = joined(path, key)
            if key not in old or key not in new:
                yield inner
            else:
                yield from changed_paths(old[key], new[key], inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (before, after) in enumerate(zip(old, new, strict=True)):
            yield from changed_paths(before, after, joined(path, index))
    elif old != new:
        yield path


def value_at(value: Any, path: str, default: Any = None) -> Any:
    """Return what lies at a path without wildcards, ``default`` where nothing does."""
    for key in parse(path):
        value = _get(value, key)
        if value is _ABSENT:
            return default
    return value


def restored(value: Any, patterns: tuple[str, ...], source: Any) -> Any:
    """Return ``value`` with what the patterns name as it is in ``source``, absent included."""
    for pattern in patterns:
        value = _changed(value, parse(pattern), source, lambda _, there: there)
    return value


def mapped(value: Any, pattern: str, change: Callable[[Any], Any]) -> Any:
    """Return ``value`` with ``change`` applied to everything that the pattern names."""
    return _changed(
        value,
        parse(pattern),
        value,
        lambda here, _: here if here is _ABSENT else change(here),
    )


def _changed(value: Any, keys: Path, source: Any, change: Callable[[Any, Any], Any]) -> Any:
    if not keys:
        return change(value, source)
    for key in _keys(keys[0], value, source):
        inner = _changed(_get(value, key), keys[1:], _get(source, key), change)
        value = _with(value, key, inner)
    return value


def _keys(key: str | int, value: Any, source: Any) -> list[str | int]:
    if key != "*":
        return [key]
    if isinstance(value, list):
        return list(range(len(value)))
    sides = [side for side in (value, source) if isinstance(side, Mapping)]
    return list(dict.fromkeys(name for side in sides for name in side))


def _get(value: Any, key: str | int) -> Any:
    if isinstance(value, Mapping):
        return value.get(key, _ABSENT)
    if isinstance(value, list) and isinstance(key, int) and key < len(value):
        return value[key]
    return _ABSENT


def _with(value: Any, key: str | int, inner: Any) -> Any:
    if isinstance(value, list):
        if inner is _ABSENT or not isinstance(key, int) or key >= len(value):
            return value
        return [*value[:key], inner, *value[key + 1 :]]
    if isinstance(value, Mapping):
        rest = {name: entry for name, entry in value.items() if name != key}
        return rest if inner is _ABSENT else {**value, key: inner}
    if value is _ABSENT and inner is not _ABSENT and isinstance(key, str):
        return {key: inner}
    return value
