"""Texts of the Common Expression Language: literals, and expressions on one line."""

from __future__ import annotations

from collections.abc import Iterable

# The scheduler reads requests, and takes those of a class without limits, too.
BOTH_LISTS = "[c.?resources.?limits.orValue({}), c.?resources.?requests.orValue({})]"
"""What a container ``c`` asks for: its limits and its requests."""


def text(value: str) -> str:
    """Return a string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def texts(values: Iterable[str]) -> str:
    """Return a list of string literals."""
    return f"[{', '.join(map(text, values))}]"


def line(expression: str) -> str:
    """Return an expression on one line, as charts fold it; literals hold single blanks only."""
    return " ".join(expression.split()).replace("( ", "(").replace(" )", ")")


def first_of(cases: Iterable[tuple[str, str]], otherwise: str) -> str:
    """Return an expression that is the value of the first condition that holds."""
    return " : ".join([f"{condition} ? {value}" for condition, value in cases] + [otherwise])
