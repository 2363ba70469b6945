"""The cost of a call through the limiter: rounds of it in turns with the bare driver's."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class CallCosts:
    """Nanoseconds a call, of each round."""

    bare: tuple[float, ...]
    limited: tuple[float, ...]

    @property
    def added(self) -> tuple[float, ...]:
        """Return what the limiter adds, of each round."""
        return tuple(limited - bare for limited, bare in zip(self.limited, self.bare, strict=True))

    @property
    def rows(self) -> tuple[tuple[str, Sequence[float]], ...]:
        """Return bare, limited and added by name, each as its least, median and greatest."""
        named = (("bare", self.bare), ("limited", self.limited), ("added", self.added))
        return tuple(
            (name, (min(costs), statistics.median(costs), max(costs))) for name, costs in named
        )


def paired(rounds: int, bare: Callable[[], float], limited: Callable[[], float]) -> CallCosts:
    """Measure both in every round; their order changes from round to round."""
    costs: tuple[list[float], list[float]] = ([], [])
    for number in range(rounds):
        order = ((0, bare), (1, limited))
        for at, measure in order if number % 2 else order[::-1]:
            costs[at].append(measure())
    return CallCosts(tuple(costs[0]), tuple(costs[1]))


def calls_within(seconds: float, nanoseconds: float) -> int:
    """Return how many calls of so many nanoseconds make a round of so many seconds."""
    return max(1, int(seconds * 1e9 / nanoseconds))
