"""Refuses what YAML can hold and a configuration cannot: dates, sets, odd keys, endless nesting."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

from divvy.model.problems import Keys, Problem, problem

# Far above any real file. A few aliases of aliases make millions of values of a short text.
MAX_DEPTH, MAX_VALUES = 20, 100_000
MAX_TEXT, MAX_DIGITS = 4_096, 18
_QUOTES = "put it in quotes if it is text"
_JSON = "text, numbers, true, false, lists and mappings are what a stack file holds"


def plain_problems(value: object) -> list[Problem]:
    """Return what of a value is not plain: nothing else looks at such a value."""
    problems: list[Problem] = []
    open_: list[tuple[Keys, object]] = [((), value)]
    for seen in range(MAX_VALUES + 1):
        if not open_:
            return problems
        keys, item = open_.pop()
        problems += _problems(keys, item)
        if len(keys) < MAX_DEPTH and seen + len(open_) <= MAX_VALUES:
            open_ += _below(keys, item)
        elif len(keys) < MAX_DEPTH:
            break
    return [problem((), f"has more than {MAX_VALUES:,} values", "are YAML aliases repeated?")]


def _below(keys: Keys, item: object) -> Iterable[tuple[Keys, object]]:
    if isinstance(item, Mapping):
        # In reverse: the last one is looked at first.
        named: list[tuple[Keys, object]] = [
            ((*keys, key), below) for key, below in item.items() if isinstance(key, str)
        ]
        return reversed(named)
    if isinstance(item, list | tuple):
        listed: list[tuple[Keys, object]] = [
            ((*keys, index), below) for index, below in enumerate(item)
        ]
        return reversed(listed)
    return ()


def _problems(keys: Keys, item: object) -> Iterator[Problem]:
    if isinstance(item, Mapping):
        for key in item:
            if not isinstance(key, str):
                yield problem(keys, f"has {_named(key)} as a key", "keys are text: " + _QUOTES)
    if isinstance(item, Mapping | list | tuple):
        if len(keys) >= MAX_DEPTH:
            yield problem(keys[:3], "is nested too deeply", f"{MAX_DEPTH} levels are the most")
        return
    if item is None or isinstance(item, bool):
        return
    if isinstance(item, str):
        if len(item) > MAX_TEXT:
            yield problem(keys, f"has {len(item):,} characters", f"{MAX_TEXT:,} are the most")
    elif isinstance(item, int):
        if abs(item) >= 10**MAX_DIGITS:
            yield problem(keys, f"is a number of more than {MAX_DIGITS} digits", _QUOTES)
    elif isinstance(item, float):
        if not math.isfinite(item):
            yield problem(keys, "is not a finite number", "a number is expected")
    else:
        yield problem(keys, f"is {_named(item)}", f"{_QUOTES}; {_JSON}")


def _named(value: object) -> str:
    """Return a value of YAML's in plain words."""
    if value is None:
        return "nothing (YAML reads null and ~ so)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return "a number"
    known = {"date": "a date", "datetime": "a time", "bytes": "binary data", "set": "a set"}
    return known.get(type(value).__name__, "a value of another kind")
