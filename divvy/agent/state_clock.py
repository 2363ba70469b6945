"""The seconds that each GPU was in each state: scrapes would miss short transitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping

from divvy.agent.gpu.status import GpuStatus


class StateClock:
    """Adds up seconds per (GPU UUID, state); times are of a monotonic clock."""

    def __init__(self) -> None:
        self._spent: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._since: dict[str, tuple[str, float]] = {}

    def observe(self, gpus: Iterable[GpuStatus], now: float) -> None:
        """Note the states of now; a GPU that is no longer listed stops counting."""
        self._settle(now)
        self._since = {gpu.uuid: (gpu.state, now) for gpu in gpus}

    def seconds(self, now: float) -> Mapping[tuple[str, str], float]:
        """Return the seconds so far, those of the running states included."""
        self._settle(now)
        return dict(self._spent)

    def _settle(self, now: float) -> None:
        for uuid, (state, since) in self._since.items():
            self._spent[uuid, state] += now - since
            self._since[uuid] = (state, now)
