"""Looks that recur: at one time, and at once where something wakes them."""

from __future__ import annotations

import asyncio

from divvy.agent.timers import next_tick, next_tick_or, until_tick


def test_wakes_once_for_pauses_that_began_at_different_times() -> None:
    ends = {now + until_tick(now, 0.5) for now in (10.0, 10.125, 10.375)}
    assert ends == {10.5}
    assert {now + until_tick(now, 1.0) for now in (10.25, 10.5)} == {11.0}


def test_passes_a_tick() -> None:
    async def scene() -> float:
        began = asyncio.get_running_loop().time()
        await next_tick(0.01)
        return asyncio.get_running_loop().time() // 0.01 - began // 0.01

    assert asyncio.run(scene()) >= 1


async def test_returns_on_an_event_before_the_tick() -> None:
    event = asyncio.Event()
    waiting = asyncio.create_task(next_tick_or(event, 1000.0))
    await asyncio.sleep(0)
    event.set()
    async with asyncio.timeout(5):
        await waiting
    event.clear()
    async with asyncio.timeout(5):
        await next_tick_or(event, 0.1)
