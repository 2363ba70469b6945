"""Keep the health of all GPUs up to date: XID events as they come, a probe now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from divvy.agent.driver import Driver
from divvy.agent.health import Health, after_probe, after_xid
from divvy.agent.nvml.process import DriverAway, Xid

_log = logging.getLogger(__name__)
_PROBE_SECONDS = 10.0


@dataclass(frozen=True)
class HealthRules:
    """Which XIDs are an application's fault, and how long a GPU must be well to come back."""

    ignored_xids: frozenset[int] = frozenset()
    recover_after: float = 60.0


class HealthWatch:
    """Calls ``changed`` whenever the health became another."""

    def __init__(self, driver: Driver, changed: Callable[[], None]) -> None:
        self._driver = driver
        self._changed = changed
        self.rules = HealthRules()
        self.health = Health()

    def xid_arrived(self, xid: Xid) -> None:
        """Take an XID event into account."""
        snapshot = self._driver.snapshot
        known = [] if snapshot is None else [gpu.uuid for gpu in snapshot.gpus]
        _log.warning("XID %s on %s", xid.number, xid.uuid or "an unnamed GPU")
        self.health = after_xid(
            self.health, xid.number, xid.uuid, xid.gi, known, self.rules.ignored_xids
        )
        self._changed()

    async def run(self) -> None:
        """Probe every GPU, for ever."""
        pause = 1.0
        while True:
            await asyncio.sleep(pause)
            pause = min(_PROBE_SECONDS, max(1.0, self.rules.recover_after / 3))
            snapshot = self._driver.snapshot
            if snapshot is None or self._driver.problem:
                continue
            before = self.health
            for gpu in snapshot.gpus:
                try:
                    problem = "the GPU is lost" if gpu.lost else await self._driver.probe(gpu.uuid)
                except DriverAway:
                    break
                self.health = after_probe(
                    self.health, gpu.uuid, problem, monotonic(), self.rules.recover_after
                )
            if self.health != before:
                self._changed()
