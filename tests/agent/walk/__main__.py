"""Walk: ``python -m tests.agent.walk SEED STEPS``; SIGTERM ends it in order."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from time import monotonic

from tests.agent.walk.oracle import Broken
from tests.agent.walk.walk import Walk, walk_steps


async def _walk(seed: int, steps: int) -> None:
    began = monotonic()

    def report(walk: Walk) -> None:
        print(
            f"seed {seed}: {walk.steps_taken} of {steps} steps, {walk.oracle.samples} looks, "
            f"{walk.admitted} pods admitted, {walk.oracle.clock.lost:.0f} s without a processor, "
            f"{monotonic() - began:.0f} s: nothing broken",
            flush=True,
        )

    walking = asyncio.ensure_future(walk_steps(seed, steps, report))
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, walking.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await walking


try:
    asyncio.run(_walk(int(sys.argv[1]), int(sys.argv[2])))
except Broken as broken:
    sys.exit(f"broken\n{broken}")
