"""What is kept of a GPU's clients over the ends of agents and daemons."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from divvy.agent.mps import daemon as daemon_module
from divvy.agent.mps import service
from divvy.agent.mps.answers import NoAnswer
from divvy.agent.mps.daemon import MpsDaemon
from divvy.agent.mps.record import MpsRecord, Recorded
from divvy.agent.mps.service import Mps
from divvy.agent.mps.supervision import Ceiling, Share
from lab.fakes.scene import running, until
from tests.agent.devices import gpu, snapshot
from tests.agent.mps.version_3_daemon import Daemon

GPU = "GPU-0"
DEFAULT_MODE = 0
QUARTER = Share("share_0", 10240, 25)
# As they are where its profile has gone.
WITHOUT_PROFILE = Ceiling(None, None, (Share(QUARTER.name, 40960, 100),))


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    """Take the place of every control daemon's process."""
    fake = Daemon()
    monkeypatch.setattr(MpsDaemon, "alive", True)
    monkeypatch.setattr(MpsDaemon, "_watch", lambda _: None)
    monkeypatch.setattr(MpsDaemon, "_run", lambda _, *words: fake.run(*words))
    monkeypatch.setattr(daemon_module, "arguments", lambda _: ["-p", "3"])
    return fake


@contextlib.asynccontextmanager
async def agent(folder: Path, ceiling: Ceiling) -> AsyncIterator[Mps]:
    """Run an agent's supervision until it has given the daemon this ceiling."""
    driver = cast("Any", SimpleNamespace(snapshot=None, problem="it is not asked"))
    mps = Mps(folder, folder / "state", folder / "memory", driver, lambda: None)
    mps.want({GPU: ceiling})
    async with running(mps.run()):
        await until(lambda: not mps.problem(GPU), 10)
        yield mps


async def test_keeps_limits_when_agent_and_daemon_end_and_the_profile_goes(
    tmp_path: Path, daemon: Daemon
) -> None:
    """An update of the agent ends its pod, and the daemon with it; containers run on."""
    (tmp_path / "state").mkdir()
    MpsRecord(tmp_path / "state").note(GPU, Recorded(DEFAULT_MODE, 1, 1))
    async with agent(tmp_path, Ceiling(20480, 50)) as mps:
        await mps.prepare(GPU, QUARTER, alone=True)
    limits = {"default": ["20480M", "50.00"], QUARTER.name: ["10240M", "25.00"]}
    assert daemon.namespaces == limits
    daemon.server = False
    async with agent(tmp_path, WITHOUT_PROFILE) as mps:
        assert daemon.namespaces == limits
        assert mps.as_started(GPU, Share(QUARTER.name, 40960, 100)) == QUARTER
        assert mps.as_started(GPU, Share("share_1", 40960, 100)) == Share("share_1", 40960, 100)


@pytest.mark.parametrize("late", ["server create", "namespace create share_0"])
async def test_limits_other_containers_again_if_a_start_fails_after_their_servers_end(
    tmp_path: Path, daemon: Daemon, late: str
) -> None:
    """The start is faster than the next question, and has no answer in the middle of its work."""
    (tmp_path / "state").mkdir()
    MpsRecord(tmp_path / "state").note(GPU, Recorded(DEFAULT_MODE, 1, 1))
    async with agent(tmp_path, Ceiling(40960, 100, (QUARTER,))) as mps:
        daemon.server = False
        daemon.waiting = {QUARTER.name: 4711}
        daemon.late = late
        with pytest.raises(NoAnswer):
            await mps.prepare(GPU, Share("share_1", 10240, 25), alone=False)
        assert mps.problem(GPU)
        await until(lambda: not mps.problem(GPU), 10)
        assert daemon.namespaces[QUARTER.name] == ["10240M", "25.00"]
        assert daemon.clients == {}


async def test_keeps_folders_while_a_new_agent_does_not_know_who_has_them(tmp_path: Path) -> None:
    """Containers that run on have mounted them, and would find neither sockets nor daemon."""
    state = tmp_path / "state"
    pipes = state / "mps" / GPU / "pipe"
    pipes.mkdir(parents=True)
    MpsRecord(state).note(GPU, Recorded(DEFAULT_MODE))  # as an agent leaves it that ends
    seen = snapshot(gpu(0))
    is_read = asyncio.Event()

    async def compute_mode(_: object) -> int:
        is_read.set()
        return DEFAULT_MODE

    driver = SimpleNamespace(snapshot=seen, problem="", compute_mode=compute_mode)
    mps = Mps(tmp_path, state, tmp_path / "memory", cast("Any", driver), lambda: None)
    mps.consider({}, seen, None)
    async with running(mps.run()):
        async with asyncio.timeout(10):
            await is_read.wait()
        await asyncio.sleep(0.2)
        assert pipes.is_dir()
        assert GPU in MpsRecord(state).gpus
        mps.consider({}, seen, {})
        await until(lambda: not mps.gpus, 10)
        assert not pipes.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="file systems are mounted by root alone")
async def test_removes_what_pods_left_in_memory_once_nobody_holds_the_gpu(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    del daemon
    monkeypatch.setattr(service, "_MEMORY_SECONDS", 0.0)
    monkeypatch.setattr(service, "_HELD_SECONDS", 0.5)
    (tmp_path / "state").mkdir()
    MpsRecord(tmp_path / "state").note(GPU, Recorded(DEFAULT_MODE, 1, 1))
    seen = snapshot(gpu(0))
    async with agent(tmp_path, Ceiling(20480, 50)) as mps:
        left = mps.memory(GPU) / "left"
        try:
            left.write_text("secret")
            # Who holds it is not known, somebody does, or nobody.
            mps.consider({}, seen, None)
            await asyncio.sleep(2)
            assert left.exists()
            mps._held = frozenset({GPU})
            await asyncio.sleep(2)
            assert left.exists()
            mps._held = frozenset()
            await until(lambda: not left.exists(), 10)
        finally:
            subprocess.run(["umount", "--lazy", str(left.parent)], check=True)
