"""``Level``: how much a change disturbs the pods that run on nodes."""

from collections.abc import Iterable
from typing import Literal

Level = Literal["none", "new pods only", "GPUs must be idle"]

LEVELS: tuple[Level, ...] = ("none", "new pods only", "GPUs must be idle")
"""From harmless to disruptive."""


def worst_level(levels: Iterable[Level]) -> Level:
    """Return the most disruptive of several levels."""
    return max(levels, key=LEVELS.index, default="none")
