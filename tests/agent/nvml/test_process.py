"""The agent's end of the NVML process: answers and deadlines."""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.nvml import process as process_module
from divvy.agent.nvml.process import DriverAway, DriverProblem, GpuHangs, NvmlProcess
from lab.fakes.agent import simulate, simulated_driver
from lab.fakes.scene import until
from lab.fakes.simulator import needs_simulator

LANE = "a GPU"


def nvml_process(root: Path) -> NvmlProcess:
    return NvmlProcess(root, *(lambda _: None,) * 3)


@needs_simulator
async def test_accepts_an_answer_that_came_while_the_agent_had_no_processor() -> None:
    async with simulated_driver(1) as folder:
        process = nvml_process(folder / "driver")
        await process.start()
        try:
            first = await process.call("describe", LANE, index=0)
            asking = asyncio.create_task(process.call("describe", LANE, 1.0, index=0))
            await asyncio.sleep(0)  # it has been asked
            time.sleep(3.0)
            assert await asking == first
            assert process.hanging_since() is None
        finally:
            await process.stop()


async def test_leaves_nothing_hanging_after_an_answer_at_the_deadline() -> None:
    """No other answer would end it."""
    process = nvml_process(Path("/nowhere"))
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    process._waiting[1] = future
    asking = asyncio.create_task(process._within(future, 1, LANE, "describe", 0.2))
    await asyncio.sleep(0)
    loop.call_later(0.1, process._settle, {"id": 1, "ok": "an answer"})
    time.sleep(0.5)
    assert await asking == "an answer"
    assert process.hanging_since() is None


@needs_simulator
async def test_reports_a_hanging_gpu_from_its_deadline_until_its_answer() -> None:
    async with simulated_driver(1) as folder:
        process = nvml_process(folder / "driver")
        await process.start()
        try:
            await process.call("describe", LANE, index=0)
            simulate(folder / "driver", "fault", "slow", "0", "500")
            with pytest.raises(GpuHangs):
                await process.call("describe", LANE, 0.1, index=0)
            assert process.hanging_since() is not None
            simulate(folder / "driver", "fault", "clear", "0")
            await until(lambda: process.hanging_since() is None, 60)
        finally:
            await process.stop()


async def test_reports_the_end_of_a_process_that_was_killed_while_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A GPU that had been asked has no fault: the others could not answer either."""
    library = tmp_path / "usr/lib64/libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    child = tmp_path / "child"
    child.write_text(
        """#!/bin/sh
        echo '{"id":0,"ok":{"version":"550.163.01"}}'
        read -r request
        printf '{"id":1,"ok":{"product":"A1'
        kill -KILL $$
        """
    )
    child.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(child))
    ends: list[str] = []
    process = NvmlProcess(tmp_path, lambda _: None, lambda _: None, ends.append)
    await process.start()
    try:
        with pytest.raises(DriverAway, match="signal 9"):
            await process.call("describe", LANE, 5.0, index=0)
        assert not process.running
        assert process.hanging_since() is None
    finally:
        await process.stop()
    assert ends == ["the NVML process ended with signal 9"]


class Unkillable:
    """A child inside a call of the driver that does not return: no signal reaches it."""

    stdin = None
    pid = 7

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader()
        self.returncode: int | None = None
        self._transport = SimpleNamespace(close=lambda: None)

    def kill(self) -> None:
        """Change nothing."""

    async def wait(self) -> None:
        await asyncio.Event().wait()


async def test_starts_no_endless_number_of_processes_that_hang_in_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None gives its memory back, and the agent's container has little."""
    children: list[Unkillable] = []

    async def started(*_: object, **__: object) -> Unkillable:
        children.append(Unkillable())
        return children[-1]

    library = tmp_path / "usr/lib64/libnvidia-ml.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setattr(asyncio, "create_subprocess_exec", started)
    monkeypatch.setattr(process_module, "_KILL_SECONDS", 0.01)
    process = nvml_process(tmp_path)
    for _ in range(3):
        with pytest.raises(DriverProblem, match="did not answer nvmlInit"):
            await process.start(0.01)
    with pytest.raises(DriverProblem, match="3 NVML processes hang in the driver.* reboot"):
        await process.start(0.01)
    assert (len(children), process.unended) == (3, 3)
    children[0].returncode = -9  # the call has returned after all
    with pytest.raises(DriverProblem, match="did not answer nvmlInit"):
        await process.start(0.01)
    assert len(children) == 4
