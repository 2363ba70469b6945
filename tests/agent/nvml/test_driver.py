"""The driver's watcher over the simulated driver: each GPU's trouble is its own."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.mig_plan import plan_mig
from divvy.agent.nvml.driver import Driver, loaded_module
from divvy.agent.nvml.mig_apply import apply_plan
from divvy.agent.nvml.process import DriverProblem, GpuHangs, Xid
from lab.fakes.agent import simulate, simulated_driver
from lab.fakes.scene import running, until
from lab.fakes.simulator import needs_simulator


@dataclass
class Watched:
    """A driver at work, and what it reported."""

    root: Path
    driver: Driver
    xids: list[Xid] = field(default_factory=list)

    @property
    def snapshot(self) -> Snapshot:
        assert self.driver.snapshot is not None
        return self.driver.snapshot


@asynccontextmanager
async def watched(gpus: int) -> AsyncIterator[Watched]:
    async with simulated_driver(gpus) as folder:
        xids: list[Xid] = []
        driver = Driver(folder / "driver", (), lambda: None, on_xid=xids.append)
        driver.scan_seconds = 1.0
        scene = Watched(folder / "driver", driver, xids)
        try:
            async with running(driver.run()):
                await until(lambda: driver.snapshot is not None)
                yield scene
        finally:
            await driver.stop()


async def partition(at: Watched) -> tuple[Gpu, Any]:
    """Give the only GPU one MIG instance; return both."""
    await at.driver.change("set_mig_mode", at.snapshot.gpus[0], enabled=True)
    instance = await at.driver.change(
        "create_instance", at.snapshot.gpus[0], nvml_profile=0, start=6, size=1
    )
    await at.driver.rescan()
    (gpu,) = at.snapshot.gpus
    return gpu, instance


@needs_simulator
@pytest.mark.parametrize("code", [1, 3, 8, 9, 10, 11, 14, 16, 17, 18, 19, 20, 999])
async def test_isolates_any_error_code_to_its_gpu(code: int) -> None:
    async with watched(4) as at:
        simulate(at.root, "fault", "code", "1", str(code))
        await until(lambda: bool(at.snapshot.gpus[1].fault))
        assert [gpu.fault == "" for gpu in at.snapshot.gpus] == [True, False, True, True]
        assert at.driver.problem == ""
        simulate(at.root, "fault", "clear", "1")
        await until(lambda: at.snapshot.gpus[1].fault == "")


@needs_simulator
async def test_shares_the_next_scan_among_concurrent_callers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []
    async with watched(2) as at:
        at.driver.scan_seconds = 1000.0
        await asyncio.sleep(1.5)  # the one that was due
        scan = at.driver._scan

        async def counted() -> None:
            looks.append(time.monotonic())
            await scan()

        monkeypatch.setattr(at.driver, "_scan", counted)
        first = asyncio.create_task(at.driver.rescan())
        while not looks:
            await asyncio.sleep(0)
        simulate(at.root, "fault", "code", "1", "16")
        await asyncio.gather(*(at.driver.rescan() for _ in range(8)))
        assert at.snapshot.gpus[1].fault  # seen by a look that began after it was asked for
        await first
        assert len(looks) == 2
        await at.driver.rescan()
        assert len(looks) == 3
        await asyncio.gather(*(at.driver.rescan() for _ in range(8)))
        assert len(looks) == 4


@needs_simulator
async def test_reports_a_gpu_that_fails_from_the_start_beside_the_others() -> None:
    async with simulated_driver(3) as folder:
        root = folder / "driver"
        simulate(root, "fault", "code", "1", "16")
        driver = Driver(root, (), lambda: None)
        async with running(driver.run()):
            await until(lambda: driver.snapshot is not None, 15)
            assert driver.snapshot is not None
            assert [gpu.index for gpu in driver.snapshot.gpus] == [0, 2]
            assert driver.snapshot.unreadable == ("GPU 1: GPU requires restart",)
        await driver.stop()


@needs_simulator
async def test_isolates_a_hanging_gpu() -> None:
    async with watched(4) as at:
        simulate(at.root, "fault", "slow", "0", "20000")
        await until(lambda: "does not answer" in at.snapshot.gpus[0].fault)
        assert [gpu.present for gpu in at.snapshot.gpus] == [False, True, True, True]
        # The others answer at once, and their XIDs arrive.
        began = time.monotonic()
        await at.driver.processes(at.snapshot.gpus[2])
        assert time.monotonic() - began < 15
        with pytest.raises(GpuHangs):
            await at.driver.processes(at.snapshot.gpus[0])
        simulate(at.root, "fault", "xid", "2", "48")
        await until(lambda: [xid.number for xid in at.xids] == [48])
        simulate(at.root, "fault", "clear", "0")
        await until(lambda: at.snapshot.gpus[0].present)


@needs_simulator
async def test_destroys_only_the_named_instance() -> None:
    """Numbers of GPU instances are given again: one alone says nothing about which it is."""
    async with watched(1) as at:
        gpu, instance = await partition(at)
        with pytest.raises(DriverProblem, match="not MIG-of-another-time"):
            await at.driver.change(
                "destroy_instance", gpu, gi=instance["gi"], uuid="MIG-of-another-time"
            )
        await at.driver.rescan()
        assert at.snapshot.gpus == (gpu,)
        await at.driver.change(
            "destroy_instance", gpu, gi=instance["gi"], uuid=gpu.instances[0].uuid
        )
        await at.driver.rescan()
        assert at.snapshot.gpus[0].instances == ()


@needs_simulator
@pytest.mark.parametrize("parts", ["0,0", "0"])
async def test_replaces_an_instance_whose_compute_an_administrator_has_changed(parts: str) -> None:
    async with watched(1) as at:
        gpu = at.snapshot.gpus[0]
        await apply_plan(at.driver, gpu, plan_mig(gpu, {"3g.20gb": 2}))
        await at.driver.rescan()
        first, second = at.snapshot.gpus[0].instances
        for words in (("-dci",), ("-cci", parts)):
            command = [at.root / "usr/bin/nvidia-smi", "mig", *words, "-gi", str(first.gi)]
            subprocess.run(command, check=True, capture_output=True)
        await at.driver.rescan()
        split, whole = at.snapshot.gpus[0].instances
        assert len(set(split.uuids)) == len(parts.split(","))
        assert (split.partial, whole) == (True, second)
        gpu = at.snapshot.gpus[0]
        await apply_plan(at.driver, gpu, plan_mig(gpu, {"3g.20gb": 2}))
        await at.driver.rescan()
        again, whole = at.snapshot.gpus[0].instances
        assert (again.uuids, again.sms, whole) == ((again.uuid,), second.sms, second)


@needs_simulator
async def test_keeps_a_mig_device_that_the_driver_does_not_show() -> None:
    """It shows none without device nodes. They are made; where that fails, nothing is known."""
    async with watched(1) as at:
        gpu, instance = await partition(at)
        nodes = at.root / "dev/nvidia-caps"
        shutil.rmtree(nodes)
        with pytest.raises(DriverProblem, match="hides the MIG device"):
            await at.driver.change("destroy_instance", gpu, gi=instance["gi"], uuid=None)
        nodes.touch()
        await at.driver.rescan()
        assert "Not a directory" in at.snapshot.gpus[0].fault
        nodes.unlink()
        (at.root / "proc/devices").rename(at.root / "proc/away")
        await at.driver.rescan()
        assert "hides the MIG device" in at.snapshot.gpus[0].fault
        (at.root / "proc/away").rename(at.root / "proc/devices")
        await at.driver.rescan()
        assert at.snapshot.gpus == (gpu,)


@needs_simulator
async def test_resets_a_closed_gpu_slowly_without_blocking_others() -> None:
    async with watched(2) as at:
        slow_nvidia_smi(at.root, 4)
        simulate(at.root, "fault", "no-activation", "0")
        gpu = at.snapshot.gpus[0]
        answer = await at.driver.change("set_mig_mode", gpu, enabled=True)
        assert answer == {"current": False, "pending": True}
        reset = asyncio.create_task(at.driver.reset(gpu))
        await asyncio.sleep(2)
        assert not reset.done()
        # Meanwhile the other GPU is looked after: its XIDs arrive, its changes are made.
        simulate(at.root, "fault", "xid", "1", "48")
        await until(lambda: [xid.number for xid in at.xids] == [48], 1.5)
        await at.driver.change("set_mig_mode", at.snapshot.gpus[1], enabled=True)
        await reset
        answer = await at.driver.change("set_mig_mode", gpu, enabled=True)
        assert answer["current"] is True


@pytest.mark.parametrize("unended", [0, 1])
async def test_replaces_a_process_that_hangs_once_where_it_cannot_be_ended(
    tmp_path: Path, unended: int
) -> None:
    """The next one hangs like it, and each keeps its memory for as long as the GPU hangs."""
    starts: list[str] = []

    async def start() -> str:
        starts.append("550.163.01")
        return starts[-1]

    async def stop() -> None:
        nvml.running = False

    since = time.monotonic() - 3600
    nvml: Any = SimpleNamespace(
        running=True, unended=unended, hanging_since=lambda: since, start=start, stop=stop
    )
    driver = Driver(tmp_path, (), lambda: None)
    driver._nvml, driver._module = nvml, ""
    await driver._follow_module()
    assert len(starts) == 1 - unended


def slow_nvidia_smi(root: Path, seconds: int) -> None:
    """Make nvidia-smi take as long before it looks at the GPU as on a real node."""
    program = root / "usr/bin/nvidia-smi"
    # A program finds its root by its own path: the same depth.
    real = program.rename(root / "usr/bin/nvidia-smi.real")
    program.write_text(f'#!/bin/sh\nsleep {seconds}\nexec {real} "$@"\n')
    program.chmod(0o755)


def test_distinguishes_an_unreadable_version_from_no_driver(tmp_path: Path) -> None:
    assert loaded_module(tmp_path) == ""
    version = tmp_path / "proc/driver/nvidia/version"
    version.mkdir(parents=True)
    assert loaded_module(tmp_path) is None


@pytest.mark.parametrize(
    ("line", "version"),
    [
        (
            "NVIDIA UNIX x86_64 Kernel Module  550.163.01  Tue Apr  8 12:41:17 UTC 2025",
            "550.163.01",
        ),
        ("NVIDIA UNIX Open Kernel Module for x86_64  570.133.20  Release Build  (x)", "570.133.20"),
        ("NVIDIA UNIX Open Kernel Module for aarch64  580.95.05  Release Build  (x)", "580.95.05"),
        ("NVIDIA UNIX Open Kernel Module for arm64  610.10", "610.10"),
    ],
)
def test_reads_the_version_of_each_kind_of_module(tmp_path: Path, line: str, version: str) -> None:
    path = tmp_path / "proc/driver/nvidia/version"
    path.parent.mkdir(parents=True)
    path.write_text(f"NVRM version: {line}\nGCC version: gcc version 12.2.0\n")
    assert loaded_module(tmp_path) == version


_WORKS = (
    "import sys; from pathlib import Path\n"
    "from lab.driver_clients.cuda import Cuda; from lab.driver_clients.sleeper import Sleeper\n"
    "cuda = Cuda(Path(sys.argv[1])).init(); cuda.context(); sleeper = Sleeper(cuda)\n"
    "sleeper.start(60_000_000_000); print('works', flush=True); sys.stdin.readline()\n"
)


@needs_simulator
async def test_reads_how_much_of_a_gpus_time_each_process_takes() -> None:
    async with watched(2) as at:
        library = at.root / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
        assert await at.driver.utilisation(at.snapshot.gpus[0]) == []
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", _WORKS, str(library)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        assert process.stdout is not None
        assert await process.stdout.readline() == b"works\n"
        await asyncio.sleep(2)
        (use,) = await at.driver.utilisation(at.snapshot.gpus[0])
        assert use["pid"] == process.pid
        assert use["percent"] > 50
        assert await at.driver.utilisation(at.snapshot.gpus[1]) == []
        process.kill()
        await process.communicate()
