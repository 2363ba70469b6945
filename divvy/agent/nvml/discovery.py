"""Print what the agent discovers on this host: `python -m divvy.agent.nvml.discovery ROOT`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.process import DriverProblem


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


def main() -> None:
    """Print driver version and UUIDs as JSON; exit with the reason where there are none."""
    try:
        snapshot = asyncio.run(discover(Path(sys.argv[1])))
    except DriverProblem as problem:
        sys.exit(f"discovery: {problem}")
    print(
        json.dumps(
            {
                "driver": snapshot.driver_version,
                "uuids": {
                    gpu.uuid: [
                        instance.uuid for instance in gpu.instances if instance.uuid is not None
                    ]
                    for gpu in snapshot.gpus
                },
                "unreadable": snapshot.unreadable,
            }
        )
    )


if __name__ == "__main__":
    main()
