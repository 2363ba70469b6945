"""What a probe says of a GPU, and what it does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.agent.driver import Driver
from divvy.agent.nvml.process import DriverAway, DriverProblem, NvmlProcess
from tests.fakes.scene import play


@pytest.mark.parametrize("code", [9, 18])
def test_a_driver_that_is_away_is_no_fault_of_a_gpu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    async def unloaded(*_: object, **__: object) -> None:
        raise DriverProblem("Driver Not Loaded", code)

    async def scene() -> None:
        driver = Driver(tmp_path, (), lambda: None)
        with pytest.raises(DriverAway):
            await driver.probe("GPU-0")
        monkeypatch.setattr(NvmlProcess, "call", unloaded)
        with pytest.raises(DriverAway):
            await driver.probe("GPU-0")

    play(scene)


def test_a_gpu_that_fails_is_told_by_its_probe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object, **__: object) -> None:
        raise DriverProblem("GPU is lost", 15)

    async def scene() -> None:
        monkeypatch.setattr(NvmlProcess, "call", lost)
        driver = Driver(tmp_path, (), lambda: None)
        assert await driver.probe("GPU-0") == "GPU is lost"

    play(scene)
