"""The agent's loops: each is restarted after an error, which is reported until it is well."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic

_log = logging.getLogger(__name__)
WELL_SECONDS = 120.0
"""A loop that has run for so long since its last error is well."""
_RESTART_SECONDS = (1.0, 5.0, 30.0)


@dataclass
class LoopHealth:
    """What is known of one loop, with times of a monotonic clock.

    ``problem`` is its last error, "" after none; ``since`` is when it started last, None while it
    waits to start again.
    """

    problem: str = ""
    since: float | None = None
    failures: int = 0

    def started(self, now: float) -> None:
        """Note that it runs."""
        self.since = now

    def ended(self, problem: str, now: float) -> float:
        """Note that it ended, with an error or "" without; return how long it waits, in seconds."""
        if self._runs_well(now):
            self.problem, self.failures = "", 0
        self.problem, self.since = problem or self.problem, None
        self.failures += 1
        return _RESTART_SECONDS[min(self.failures, len(_RESTART_SECONDS)) - 1]

    def reported(self, now: float) -> str:
        """Return the last error, "" once it has run well."""
        return "" if self._runs_well(now) else self.problem

    def _runs_well(self, now: float) -> bool:
        return self.since is not None and now - self.since >= WELL_SECONDS


class Loops:
    """Runs loops by their names; an error in one takes nothing else away."""

    def __init__(
        self,
        on_failure: Callable[[], None],
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._on_failure = on_failure
        self._clock = clock
        self._sleep = sleep
        self._health: dict[str, LoopHealth] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        """Return the errors of the loops that are not well again."""
        now = self._clock()
        return tuple(filter(None, (health.reported(now) for health in self._health.values())))

    def is_well(self, name: str) -> None:
        """Forget a loop's error at once: it has done what it is for."""
        if name in self._health:
            self._health[name].problem = ""

    async def keep_up(self, name: str, loop: Callable[[], Awaitable[None]]) -> None:
        """Run a loop; never returns."""
        health = self._health.setdefault(name, LoopHealth())
        while True:
            health.started(self._clock())
            problem = ""
            try:
                await loop()
            except Exception as error:
                _log.exception("%s failed", name)
                problem = f"internal error in {name}: {type(error).__name__}: {error}"
            pause = health.ended(problem, self._clock())
            if problem:
                self._on_failure()
            await self._sleep(pause)
