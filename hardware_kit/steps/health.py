"""A program that breaks: the driver's event reaches the agent, and the GPU stays of use."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import Callable

from divvy.agent.gpu.health import Health, HealthRules
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.health_watch import HealthWatch
from divvy.agent.nvml.process import Xid
from divvy.model.stack import IGNORED_XIDS
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings

_EVENT_SECONDS = 15.0


def run(settings: KitSettings, notes: Notes) -> None:
    """Run bad-access on the idle GPU while its events are watched as the agent watches them."""
    environment = {**settings.machine.environment, "CUDA_VISIBLE_DEVICES": settings.gpu}

    def workload(name: str) -> subprocess.CompletedProcess[str]:
        command = [str(settings.workloads / name)]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=60, check=False
        )

    asyncio.run(_watched(settings, notes, workload))


async def _watched(
    settings: KitSettings,
    notes: Notes,
    workload: Callable[[str], subprocess.CompletedProcess[str]],
) -> None:
    heard: list[tuple[float, Xid]] = []
    arrived = asyncio.Event()
    health = HealthWatch(Health(), lambda: None)
    health.rules = HealthRules(frozenset(IGNORED_XIDS))

    def hear(xid: Xid) -> None:
        heard.append((time.monotonic(), xid))
        arrived.set()
        health.on_xid(xid)

    driver = Driver(settings.root, (), lambda: None, on_xid=hear, on_scan=health.on_scan)
    try:
        await driver.start()
        await driver.rescan()
        broken = await asyncio.to_thread(workload, "bad-access")
        ended = time.monotonic()
        notes.holds(
            "a program that writes where nothing is",
            broken.returncode == 0,
            "ended by the driver with an illegal address",
            broken.stdout + broken.stderr,
        )
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_EVENT_SECONDS):
                await arrived.wait()
        own = [xid for _, xid in heard if xid.uuid == settings.gpu]
        numbers = ", ".join(f"XID {xid.number}" for xid in own) or "no event"
        notes.holds("the event of it that the agent hears", own, "one of this GPU", numbers)
        notes.equal("events of other GPUs", 0, len(heard) - len(own))
        if heard:
            notes.tell("heard in seconds after the program's end", heard[0][0] - ended)
        await driver.rescan()
        faults = health.health.faults
        # A program's own mistakes are among the XIDs that are ignored unless somebody says other.
        notes.equal(
            "faults that the agent then sees",
            "none",
            [fault.reason for fault in faults.values()] or "none",
        )
        after = await asyncio.to_thread(workload, "cuda-vector-add")
        passed = after.returncode == 0 and "Test PASSED" in after.stdout
        last = ((after.stdout + after.stderr).strip().splitlines() or ["nothing"])[-1]
        result = "Test PASSED" if passed else last
        notes.holds("cuda-vector-add afterwards", passed, "Test PASSED", result)
    finally:
        await driver.stop()
