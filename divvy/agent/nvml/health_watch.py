"""Keep the health of all GPUs up to date: XID events as they come, and every look at the GPUs."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.health import Health, HealthRules, after_scan, after_xid
from divvy.agent.nvml.process import Xid

_log = logging.getLogger(__name__)
_MAX_SCAN_SECONDS = 10.0


class HealthWatch:
    """Keeps the health, from what it was; calls ``on_change`` whenever it became another."""

    def __init__(self, health: Health, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self.rules = HealthRules()
        self.health = health

    @property
    def scan_seconds(self) -> float:
        """Return how often GPUs have to be looked at for their recovery to be seen in time."""
        return min(_MAX_SCAN_SECONDS, max(1.0, self.rules.recover_after / 3))

    def on_xid(self, xid: Xid) -> None:
        """Take an XID event into account."""
        _log.warning("XID %s on %s", xid.number, xid.uuid)
        ignored = self.rules.ignored_xids
        self._become(after_xid(self.health, xid.number, xid.uuid, xid.gi, ignored))

    def on_scan(self, snapshot: Snapshot) -> None:
        """Take a look at all GPUs into account."""
        self._become(after_scan(self.health, snapshot, monotonic(), self.rules.recover_after))

    def _become(self, health: Health) -> None:
        if health != self.health:
            self.health = health
            self._on_change()
