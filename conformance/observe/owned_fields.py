"""Compare what the program writes with what the cluster has: only the fields that it sets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from divvy.model.quantities import parse_quantity

# Lists whose entries the API server tells apart by a key: others may add entries of their own.
_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "ports": "name",
}
_QUANTITIES = ("requests", "limits", "sizeLimit")
_LONGEST = 120


def differences(owned: Any, live: Any, path: str = "") -> Iterator[str]:
    """Yield "path is X, not Y" for each field of ``owned`` that ``live`` has not so.

    Fields that only ``live`` has are somebody else's, or defaults. The order of objects in a list
    means nothing if each has its like; that of plain values does.
    """
    if _is_empty(owned) and (live is None or _is_empty(live)):
        return
    if isinstance(owned, Mapping) and isinstance(live, Mapping):
        for name, value in owned.items():
            yield from differences(value, live.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(owned, Sequence) and isinstance(live, Sequence) and not isinstance(owned, str):
        yield from _in_list(owned, live, path)
    elif not _same(owned, live, path):
        yield f"{path} is {_short(live)}, not {_short(owned)}"


def _in_list(owned: Sequence[Any], live: Sequence[Any], path: str) -> Iterator[str]:
    key = _KEYS.get(path.rpartition(".")[2])
    if key is not None and all(
        isinstance(entry, Mapping) and key in entry for entry in (*owned, *live)
    ):
        entries = {entry[key]: entry for entry in live}
        for entry in owned:
            inner = f"{path}[{entry[key]}]"
            if entry[key] in entries:
                yield from differences(entry, entries[entry[key]], inner)
            else:
                yield f"{inner} is missing"
        return
    if len(owned) != len(live):
        yield f"{path} has {len(live)} entries, not {len(owned)}"
        return
    if all(isinstance(entry, Mapping) for entry in owned):
        yield from _unordered(owned, live, path)
        return
    for index, (entry, other) in enumerate(zip(owned, live, strict=True)):
        yield from differences(entry, other, f"{path}[{index}]")


def _unordered(owned: Sequence[Any], live: Sequence[Any], path: str) -> Iterator[str]:
    """Pair each object with one that has all of its fields; compare the rest in their order."""
    rest = list(live)
    unmatched = []
    for index, entry in enumerate(owned):
        like = next((other for other in rest if not any(differences(entry, other))), None)
        if like is None:
            unmatched.append((index, entry))
        else:
            rest.remove(like)
    for (index, entry), other in zip(unmatched, rest, strict=True):
        yield from differences(entry, other, f"{path}[{index}]")


def _is_empty(value: Any) -> bool:
    """Return whether the API server leaves a value away as it does an absent one."""
    return value is None or value is False or value in ("", [], {}, ())


def _same(owned: Any, live: Any, path: str) -> bool:
    if owned == live:
        return True
    parts = path.split(".")
    if not any(name in parts for name in _QUANTITIES) or live is None:
        return False
    try:
        return Fraction(parse_quantity(str(owned))) == Fraction(parse_quantity(str(live)))
    except ValueError:
        return False


def _short(value: Any) -> str:
    if value is None:
        return "absent"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
