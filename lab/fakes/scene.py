"""Run one asynchronous test scene, and what works or is waited for in it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene in a loop of its own and let its servers go while the loop still runs.

    grpc.aio shuts a collected server down on its loop; on a closed one it can only warn.
    """

    async def whole() -> None:
        await scene()
        gc.collect()
        await asyncio.sleep(0.05)

    asyncio.run(whole())


async def until(met: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is so; raises TimeoutError."""
    async with asyncio.timeout(seconds):
        while not met():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(work: Coroutine[Any, Any, object]) -> AsyncIterator[None]:
    """Let something work until the block ends."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
