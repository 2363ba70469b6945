"""Texts of the Common Expression Language: literals, and expressions on one line."""

from __future__ import annotations

from collections.abc import Iterable

from divvy.model.fractions import MAX_CHARACTERS

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


def starts_with(expression: str, prefixes: Iterable[str]) -> str:
    """Return a condition that a text begins with one of these."""
    return " || ".join(f"{expression}.startsWith({text(prefix)})" for prefix in prefixes)


def line(expression: str) -> str:
    """Return an expression on one line, as charts fold it; literals hold single blanks only."""
    return " ".join(expression.split()).replace("( ", "(").replace(" )", ")")


def shortened(expression: str, characters: int = MAX_CHARACTERS) -> str:
    """Return an expression for the beginning of a text that a user has written, on one line.

    The API server drops a message of more than one line, or of more than 5 KiB.
    """
    beginning = f"s.size() > {characters} ? s.substring(0, {characters}) : s"
    return rf"[{expression}].map(s, {beginning})[0].replace('\n', ' ')"


def first_of(cases: Iterable[tuple[str, str]], otherwise: str) -> str:
    """Return an expression that is the value of the first condition that holds."""
    return " : ".join([f"{condition} ? {value}" for condition, value in cases] + [otherwise])
