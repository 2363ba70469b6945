"""Run one asynchronous test scene."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable


def play(scene: Callable[[], Awaitable[None]]) -> None:
    """Run a scene in a loop of its own and let its servers go while the loop still runs.

    grpc.aio shuts a collected server down on its loop; on a closed one it can only warn.
    """

    async def whole() -> None:
        await scene()
        gc.collect()
        await asyncio.sleep(0.05)

    asyncio.run(whole())
