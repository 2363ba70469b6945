"""How much a change disturbs the pods that run on nodes."""

from typing import Literal

Level = Literal["none", "new pods only", "GPUs must be idle"]

LEVELS: tuple[Level, ...] = ("none", "new pods only", "GPUs must be idle")
"""From harmless to disruptive."""
