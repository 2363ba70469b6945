"""Looks that recur share the process's wake-ups: each falls on a multiple of its period."""

from __future__ import annotations

import asyncio


async def next_tick(seconds: float) -> None:
    """Sleep until the event loop's clock is at the next multiple of ``seconds``."""
    await asyncio.sleep(until_tick(_now(), seconds))


async def next_tick_or(event: asyncio.Event, seconds: float) -> None:
    """Wait for the event, until the next tick at most."""
    # Not by asyncio.timeout: a cancellation costs more than all that is looked at.
    at_tick = asyncio.get_running_loop().call_later(until_tick(_now(), seconds), event.set)
    try:
        await event.wait()
    finally:
        at_tick.cancel()


def until_tick(now: float, seconds: float) -> float:
    """Return the seconds from ``now`` to the next multiple of ``seconds``."""
    return seconds - now % seconds


def _now() -> float:
    return asyncio.get_running_loop().time()
