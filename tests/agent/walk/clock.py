"""Time as the node's programs had it: while they wait for a processor or the disk, it stands still.

An agent that gets no processor is late by the wall's clock, whatever it does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from time import monotonic

_PROC = Path("/proc")


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
                waited = self._waited[thread.name] = _waited(thread)
                seconds = (waited - before.get(thread.name, 0)) / 1e9
                lost = max(lost, passed if _at_the_disk(thread) else seconds)
        lost = min(passed, lost)
        self.lost += lost
        self.now += passed - lost


def _threads(processes: list[int]) -> Iterator[Path]:
    """Yield the threads of these processes, and of those that they started."""
    todo = list(processes)
    while todo:
        with suppress(OSError):
            for thread in (_PROC / str(todo.pop()) / "task").iterdir():
                yield thread
                with suppress(OSError):
                    todo += [int(child) for child in (thread / "children").read_text().split()]


def _waited(thread: Path) -> int:
    """Return for how many nanoseconds a thread was ready to run, and had no processor."""
    return int((thread / "schedstat").read_text().split()[1])


def _at_the_disk(thread: Path) -> bool:
    return (thread / "stat").read_text().rpartition(") ")[2].startswith("D")
