"""Ends a check before its time: at its limit, or when the run is to stop."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import pytest

from conformance.skips import CheckSkipped

# A call of the driver may hang once more while the check cleans up.
_REPEAT_SECONDS = 30.0


class TooLate(AssertionError):
    """A check that did not end within its limit."""


class Interruption:
    """Ends the check that runs on Ctrl-C, SIGTERM, a lost terminal, and when its time is up.

    ``stopped`` says so afterwards: no further check is begun. ``deadline`` is that of the run.
    """

    def __init__(self) -> None:
        self.stopped = ""
        self.deadline = math.inf
        self._checking = False
        self._limit = 0.0

    def listen(self) -> None:
        """Take the signals over."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._stop)

    @contextmanager
    def limited(self, seconds: float) -> Iterator[None]:
        """Let a check run for so long; raises TooLate, CheckSkipped where the run is to stop."""
        self._limit = max(1.0, min(seconds, self.deadline - time.monotonic()))
        before = signal.signal(signal.SIGALRM, self._late)
        earlier = signal.setitimer(signal.ITIMER_REAL, self._limit, _REPEAT_SECONDS)
        self._checking = True
        try:
            yield
        finally:
            self._checking = False
            signal.setitimer(signal.ITIMER_REAL, *earlier)
            signal.signal(signal.SIGALRM, before)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Put something back; no interruption ends this before it is done."""
        before, self._checking = self._checking, False
        try:
            yield
        finally:
            self._checking = before

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        if self.stopped:
            return
        self.stopped = "the run was stopped"
        if self._checking:
            raise CheckSkipped(self.stopped)

    def _late(self, _number: int, _frame: FrameType | None) -> None:
        if self._checking:
            raise TooLate(f"it did not end within {self._limit:.0f} s")


INTERRUPTION = pytest.StashKey[Interruption]()
