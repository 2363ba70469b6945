"""Quantities as allocations of claims have them."""

from __future__ import annotations

from divvy.model.quantities import parse_count

_MI = 1 << 20


def amount(text: str) -> int:
    """Read a whole quantity; raises ValueError."""
    number = parse_count(text)
    if number is None:
        raise ValueError(f"{text!r} is not a whole number")
    return number


def mib_of(text: str) -> int:
    """Read a quantity of bytes as MiB, rounded up; raises ValueError."""
    return -(-amount(text) // _MI)
