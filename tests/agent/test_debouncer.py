"""A burst is looked at once, and a change that comes alone is not held up for one."""

from __future__ import annotations

import asyncio
import time
from functools import partial

import pytest

from divvy.agent import debouncer
from divvy.agent.debouncer import Debouncer


async def waited(monkeypatch: pytest.MonkeyPatch, *immediate: bool, longest: float = 5.0) -> float:
    """Return how long a waiter waited that was called so while it did."""
    monkeypatch.setattr(debouncer, "TOGETHER_SECONDS", 0.3)
    waker = Debouncer()
    began = time.monotonic()
    for after, is_immediate in enumerate(immediate, 1):
        trigger = partial(waker.trigger, immediate=is_immediate)
        asyncio.get_running_loop().call_later(0.05 * after, trigger)
    await waker.wait(longest)
    return time.monotonic() - began


async def test_waits_for_a_burst_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await waited(monkeypatch, False, False) >= 0.35


async def test_returns_at_once_for_a_single_event(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await waited(monkeypatch, True) < 0.3
    assert await waited(monkeypatch, False, True) < 0.3


async def test_waits_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await waited(monkeypatch, longest=0.1) < 0.3


async def test_forgets_events_from_before_the_clear() -> None:
    waker = Debouncer()
    waker.trigger(immediate=True)
    waker.clear()
    began = time.monotonic()
    await waker.wait(0.1)
    assert time.monotonic() - began >= 0.1
