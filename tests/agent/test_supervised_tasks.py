"""An error of a loop is reported, and no longer than it is one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from divvy.agent.supervised_tasks import WELL_SECONDS, LoopHealth, Loops
from lab.cluster.paths import REPOSITORY
from lab.fakes.agent import agent_node
from lab.fakes.simulator import needs_simulator


def failed(at: float = 0.0) -> LoopHealth:
    health = LoopHealth()
    health.started(at)
    health.ended("broken", at)
    return health


def test_reports_an_error_until_its_loop_ran_for_two_minutes() -> None:
    health = failed()
    assert health.reported(1000.0) == "broken"  # it has not started again
    health.started(1000.0)
    assert WELL_SECONDS == 120.0
    assert health.reported(1119.9) == "broken"
    assert health.reported(1120.0) == ""


def test_counts_the_time_from_the_last_start() -> None:
    health = failed()
    health.started(1.0)
    health.ended("broken again", 100.0)
    health.started(105.0)
    assert health.reported(200.0) == "broken again"
    assert health.reported(225.0) == ""


def test_keeps_the_error_of_a_loop_that_ends_soon_without_one() -> None:
    health = failed()
    health.started(1.0)
    health.ended("", 2.0)
    health.started(3.0)
    assert health.reported(100.0) == "broken"


def test_drops_the_old_error_of_a_loop_that_ran_well() -> None:
    health = failed()
    health.started(1.0)
    health.ended("", 500.0)
    assert health.reported(501.0) == ""


def test_backs_off_restarts_until_a_loop_is_well() -> None:
    health = LoopHealth()
    pauses = []
    for now in (0.0, 10.0, 20.0, 30.0):
        health.started(now)
        pauses.append(health.ended("broken", now + 1))
    health.started(100.0)
    pauses.append(health.ended("broken", 220.0))
    assert pauses == [1.0, 5.0, 30.0, 30.0, 1.0]


class Clock:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    async def sleep(self, seconds: float) -> None:
        self.now += seconds
        await asyncio.sleep(0)


async def test_restarts_a_failed_loop_and_reports_it(caplog: pytest.LogCaptureFixture) -> None:
    clock, reports = Clock(), []
    loops = Loops(lambda: reports.append(loops.problems), lambda: clock.now, clock.sleep)
    seen: dict[float, tuple[str, ...]] = {}
    starts: list[float] = []

    async def sick() -> None:
        starts.append(clock.now)
        if len(starts) < 3:
            raise ValueError("no such figure")
        for _ in range(130):
            await clock.sleep(1.0)
            seen[clock.now] = loops.problems

    async with asyncio.timeout(30):
        running = asyncio.create_task(loops.keep_up("the metrics", sick))
        while len(starts) < 4:
            await asyncio.sleep(0)
        running.cancel()
    text = "internal error in the metrics: ValueError: no such figure"
    assert reports == [(text,), (text,)]
    assert starts[:3] == [0.0, 1.0, 6.0]
    assert [now for now, problems in seen.items() if problems == (text,)][-1] == 125.0
    assert seen[126.0] == ()
    assert [record.message for record in caplog.records] == ["the metrics failed"] * 2


async def test_counts_a_loop_as_well_once_its_work_is_done() -> None:
    clock = Clock()
    loops = Loops(lambda: None, lambda: clock.now, clock.sleep)

    def raising(error: Exception) -> Callable[[], Awaitable[None]]:
        async def loop() -> None:
            raise error

        return loop

    names = ("one", "other")
    tasks = [asyncio.create_task(loops.keep_up(name, raising(OSError("x")))) for name in names]
    await asyncio.sleep(0)
    assert len(loops.problems) == 2
    loops.is_well("one")
    loops.is_well("unknown")
    assert loops.problems == ("internal error in other: OSError: x",)
    for task in tasks:
        task.cancel()


@pytest.mark.agent_process
@needs_simulator
async def test_reports_the_error_of_reconciliation_which_reports_all_others(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        """
import os
from divvy.agent.observe import Observer

observe = Observer.observe

async def observed(self, desired, snapshot, node):
    if os.path.exists(os.environ["BROKEN"]):
        raise ZeroDivisionError("unforeseen")
    return await observe(self, desired, snapshot, node)

Observer.observe = observed
"""
    )
    broken = tmp_path / "broken"
    paths = f"{tmp_path}{os.pathsep}{REPOSITORY}"
    environment = {"PYTHONPATH": paths, "BROKEN": str(broken)}
    async with agent_node(1, {}, environment=environment) as node:
        await node.offered("nvidia.com/gpu", 1)
        broken.touch()
        node.configure({"timeSlicing": {"replicas": 2}})
        text = "internal error in reconciliation: ZeroDivisionError: unforeseen"
        await node.until(lambda: text in node.status["reason"])
        assert node.status["state"] == "Degraded"
        assert [gpu["state"] for gpu in node.status["gpus"]] == ["Ready"]
        broken.unlink()
        await node.offered("nvidia.com/gpu.shared", 2, 90)
        await node.until(lambda: node.status["state"] == "Ready")
