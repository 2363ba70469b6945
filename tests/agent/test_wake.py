"""A burst is looked at once, and a change that comes alone is not held up for one."""

from __future__ import annotations

import asyncio
import time

import pytest

from divvy.agent import wake
from divvy.agent.wake import Wake


async def waited(monkeypatch: pytest.MonkeyPatch, *calls: str, longest: float = 5.0) -> float:
    """Return how long a waiter waited that was called so while it did."""
    monkeypatch.setattr(wake, "TOGETHER_SECONDS", 0.3)
    waker = Wake()
    began = time.monotonic()
    for after, call in enumerate(calls, 1):
        asyncio.get_running_loop().call_later(0.05 * after, getattr(waker, call))
    await waker.wait(longest)
    return time.monotonic() - began


async def test_waits_for_a_burst_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await waited(monkeypatch, "soon", "soon") >= 0.35


async def test_returns_at_once_for_a_single_event(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await waited(monkeypatch, "now") < 0.3
    assert await waited(monkeypatch, "soon", "now") < 0.3


async def test_waits_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await waited(monkeypatch, longest=0.1) < 0.3


async def test_forgets_events_from_before_the_clear() -> None:
    waker = Wake()
    waker.now()
    waker.clear()
    began = time.monotonic()
    await waker.wait(0.1)
    assert time.monotonic() - began >= 0.1
