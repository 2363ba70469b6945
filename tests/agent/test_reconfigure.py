"""Plans of many GPUs at once: one look shows them all, and none waits for a slow one."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from divvy.agent import reconfigure
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.mig_plan import MigPlan
from divvy.agent.gpu.transition import Decision
from divvy.agent.plugin.inventory import AdvertisedGpu
from divvy.agent.reconfigure import Reconfigurer
from divvy.model import DesiredGpu
from tests.agent.devices import gpu, snapshot

GPUS = tuple(gpu(index) for index in range(3))


class FakeDriver:
    """Counts the looks at the GPUs, and knows which plans were carried out before each."""

    def __init__(self) -> None:
        self.carried_out: list[str] = []
        self.looks: list[tuple[str, ...]] = []
        self.slow = asyncio.Event()

    async def carry_out(self, _driver: object, of_gpu: Gpu, _plan: MigPlan) -> None:
        for _ in range(of_gpu.index):
            await asyncio.sleep(0.01)
        if of_gpu.index == 2:
            await self.slow.wait()
        self.carried_out.append(of_gpu.uuid)

    async def rescan(self) -> None:
        if not self.looks or self.looks[-1] != tuple(self.carried_out):
            self.looks.append(tuple(self.carried_out))


async def play(monkeypatch: pytest.MonkeyPatch, *, slow: bool) -> list[tuple[str, ...]]:
    """Carry out three plans; return what each look at the GPUs could show."""
    driver = FakeDriver()
    monkeypatch.setattr(reconfigure, "apply_plan", driver.carry_out)
    ended: list[None] = []
    work = Reconfigurer(cast("Any", driver), cast("Any", None), lambda: ended.append(None))
    if not slow:
        driver.slow.set()
    layouts = (DesiredGpu(gpu.uuid, gpu.index, gpu.index, {}, ()) for gpu in GPUS)
    plans = {
        layout.uuid: Decision(AdvertisedGpu(layout), apply=MigPlan(layout.uuid))
        for layout in layouts
    }
    work.execute(snapshot(*GPUS), plans)
    async with asyncio.timeout(10):
        while len(ended) < (2 if slow else 3):
            await asyncio.sleep(0.01)
        assert work.applying == ({"GPU-2"} if slow else frozenset())
        driver.slow.set()
        while work.applying:
            await asyncio.sleep(0.01)
    return driver.looks


async def test_scans_once_for_plans_that_end_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert await play(monkeypatch, slow=False) == [("GPU-0", "GPU-1", "GPU-2")]


async def test_finishes_a_gpu_without_waiting_for_one_that_takes_minutes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (await play(monkeypatch, slow=True))[-2:] == [
        ("GPU-0", "GPU-1"),
        ("GPU-0", "GPU-1", "GPU-2"),
    ]
