"""Phrases of messages: a count with its noun, and the first of many names."""

from collections.abc import Sequence


def plural(number: int, thing: str) -> str:
    """Return a count with its noun: ``1 node``, ``4 nodes``."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def some(names: Sequence[str], limit: int = 3) -> str:
    """Return names, the first ones where there are many: ``a, b, c and 2 more``."""
    more = len(names) - limit
    return ", ".join(names[:limit]) + (f" and {more:,} more" if more > 0 else "")
