"""Facts of this host that the agent discovers once."""

from __future__ import annotations

from pathlib import Path

from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.nvml.driver import Driver


async def discover(root: Path) -> Snapshot:
    """Look at all GPUs once; raises DriverProblem."""
    driver = Driver(root, (), lambda: None)
    try:
        await driver.start()
        await driver.rescan()
    finally:
        await driver.stop()
    assert driver.snapshot is not None
    return driver.snapshot
