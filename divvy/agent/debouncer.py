"""Wakes reconciliation: at once, or with what comes in the same burst."""

from __future__ import annotations

import asyncio
import contextlib

# GPUs that were repartitioned together end within so long of each other.
TOGETHER_SECONDS = 0.005


class Debouncer:
    """Wakes one waiter, once for all triggers of a burst."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._now = asyncio.Event()

    def trigger(self, *, immediate: bool = False) -> None:
        """Wake it with what follows within a moment; ``immediate``: nothing else follows."""
        if immediate:
            self._now.set()
        self._event.set()

    def clear(self) -> None:
        """Forget what there was until now."""
        self._event.clear()
        self._now.clear()

    async def wait(self, longest: float) -> None:
        """Wait until woken, ``longest`` seconds at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(longest):
                await self._event.wait()
                async with asyncio.timeout(TOGETHER_SECONDS):
                    await self._now.wait()
