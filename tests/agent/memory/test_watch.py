"""Who is above a memory limit is ended in time, whatever the API server does."""

from __future__ import annotations

import asyncio
from signal import SIGKILL, SIGTERM, Signals
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.decide.memory_limit import Excess, Process
from divvy.agent.memory import watch
from divvy.agent.memory.watch import MemoryWatch
from tests.fakes.scene import play

PROCESSES = [Process(number, 1) for number in (11, 12, 13)]


class SilentApi:
    """Does not answer: every Event waits."""

    def __init__(self) -> None:
        self.waiting = 0

    async def pod_event(self, *_: str) -> None:
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1


def test_nobodys_end_waits_for_an_api_server_that_is_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[Process, Signals]] = []
    found = tuple(
        Excess("ns/p", "uid", f"c{each.pid}", "r", "GPU-0", 9, 1, True, (each,))
        for each in PROCESSES
    )

    async def claimed() -> dict[str, Any]:
        return {}

    async def excesses(*_: object) -> tuple[Excess, ...]:
        return found

    def send(process: Process, number: Signals) -> bool:
        sent.append((process, number))
        return True

    clock = iter(range(0, 1000, 5))
    monkeypatch.setattr(watch, "send", send)
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(watch, "monotonic", lambda: float(next(clock)))

    async def scene() -> None:
        api = SilentApi()
        limited = SimpleNamespace(memory_limit_mib=1, memory_enforced=True, name="r")
        plugins = SimpleNamespace(advertised=lambda: [limited])
        looking: Any = MemoryWatch(None, plugins, None, api, None, claimed)  # type: ignore[arg-type]
        looking._excesses = excesses
        running = asyncio.create_task(looking.run())
        async with asyncio.timeout(5):
            while len(sent) < 6:
                await asyncio.sleep(0.01)
        assert sent == [(each, number) for number in (SIGTERM, SIGKILL) for each in PROCESSES]
        # Each is reported once, and with the watch its reports end.
        assert api.waiting == 3
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.sleep(0)
        assert api.waiting == 0

    play(scene)
