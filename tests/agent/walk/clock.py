"""Time as the node's programs had it: while they wait for a processor or the disk, it stands still.

An agent that gets no processor is late by the wall's clock, whatever it does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic

_PROC = "/proc"


class NodeClock:
    """A monotonic clock of some processes and of those that they started; ``tick`` moves it on.

    What the thread that waited longest has waited is taken off, tick by tick. Seconds.
    """

    def __init__(self, processes: Callable[[], list[int]]) -> None:
        self._processes = processes
        self._waited: dict[str, int] = {}
        self._ticked = monotonic()
        self.now = 0.0
        self.lost = 0.0  # what was taken off so far

    def tick(self) -> None:
        """Go on to this instant."""
        instant = monotonic()
        passed, self._ticked = instant - self._ticked, instant
        before, self._waited = self._waited, {}
        lost = 0.0
        for thread in _threads(self._processes()):
            with suppress(OSError):  # it has ended
                waited = self._waited[thread] = _waited(thread)
                seconds = (waited - before.get(thread, 0)) / 1e9
                lost = max(lost, passed if _at_the_disk(thread) else seconds)
        lost = min(passed, lost)
        self.lost += lost
        self.now += passed - lost


def _threads(processes: list[int]) -> Iterator[str]:
    """Yield the folders of the threads of these processes, and of those that they started."""
    todo = list(processes)
    while todo:
        tasks = f"{_PROC}/{todo.pop()}/task"
        with suppress(OSError):
            for thread in os.listdir(tasks):  # noqa: PTH208
                yield f"{tasks}/{thread}"
                with suppress(OSError):
                    todo += [int(child) for child in _read(f"{tasks}/{thread}/children").split()]


def _waited(thread: str) -> int:
    """Return for how many nanoseconds a thread was ready to run, and had no processor."""
    return int(_read(f"{thread}/schedstat").split()[1])


def _at_the_disk(thread: str) -> bool:
    return _read(f"{thread}/stat").rpartition(b") ")[2].startswith(b"D")


def _read(path: str) -> bytes:
    # Twenty looks a second at some thirty threads: without pathlib and codecs a third of the cost.
    file = os.open(path, os.O_RDONLY)
    try:
        return os.read(file, 1 << 16)
    finally:
        os.close(file)
