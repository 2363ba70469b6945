"""MPS as the agent runs it: a daemon on this driver limits its clients."""

from __future__ import annotations

import asyncio
import contextlib
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from conformance.bare.findings import Findings
from conformance.bare.gpus import Gpu
from conformance.bare.host import BareHost
from conformance.check import BARE, check
from conformance.skips import not_applicable
from divvy.agent.driver_root import driver_program
from divvy.agent.mps import own_memory
from divvy.agent.mps.answers import NoAnswer
from divvy.agent.mps.daemon import PROGRAM, MpsDaemon
from divvy.agent.mps.supervision import Ceiling, Share
from divvy.model.enforcement import MPS_V3_SINCE
from divvy.model.versions import is_older

_MIB, _THREADS = 1024, 40
_REFUSED = 12  # CUDA's own refusal is mem-hog's exit code
_LOOKS = 100  # until it is ready, ten in a second
_BURN_SECONDS = 4


class _Clients:
    """Programs that see the GPU through one share of a daemon."""

    def __init__(self, host: BareHost, workloads: str, memory: Path) -> None:
        self._host, self._workloads, self._memory = host, workloads, memory
        self.pipes = Path()

    def start(self, program: str, *arguments: object) -> subprocess.Popen[str]:
        """Start one, with the daemon's /dev/shm in the place of its own."""
        command = [sys.executable, "-I", "-S", own_memory.__file__, str(self._memory)]
        return subprocess.Popen(
            [*command, str(Path(self._workloads, program)), *map(str, arguments)],
            env={**self._host.environment, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def end(self, started: subprocess.Popen[str]) -> str:
        """Wait for one; return what it says."""
        return self._host.end(started).log

    async def run(self, program: str, *arguments: object) -> tuple[int, str]:
        """Run one to its end; return its exit code and what it says."""
        result = await asyncio.to_thread(self._host.end, self.start(program, *arguments))
        return result.code, result.log


@contextlib.contextmanager
def _daemon(root: Path, uuid: str) -> Iterator[tuple[MpsDaemon, Path]]:
    # Its sockets' paths must be short.
    with TemporaryDirectory(prefix="divvy-mps-", dir="/run") as folder:
        memory = Path(folder, "memory")
        daemon = MpsDaemon(root, Path(folder, "gpu"), memory, uuid, lambda: None)
        try:
            yield daemon, memory
        finally:
            daemon.end()
            daemon.forget()


@check(
    "BARE-21",
    "MPS limits its clients, and one that breaks leaves the next alone",
    "MUST",
    BARE,
    "its evidence has the daemon's last words: without it no profile may share by MPS",
)
@pytest.mark.exclusive
def test_mps_limits_its_clients(
    host: BareHost, root: Path, workloads: str, idle: Gpu, findings: Findings
) -> None:
    if driver_program(root, PROGRAM) is None:
        not_applicable(f"this driver came without {PROGRAM}")
    version_3 = not is_older(host.driver, MPS_V3_SINCE)
    with _daemon(root, idle.uuid) as (daemon, memory):
        clients = _Clients(host, workloads, memory)
        try:
            asyncio.run(_play(daemon, clients, findings, version_3=version_3))
        finally:
            findings.tell("the daemon's last words", daemon.last_words())
    findings.judge()


async def _play(
    daemon: MpsDaemon, clients: _Clients, findings: Findings, *, version_3: bool
) -> None:
    share = Share("verify", _MIB, _THREADS)
    began = time.monotonic()
    daemon.start(version_3=version_3)
    ceiling = Ceiling(_MIB, _THREADS, (share,))
    await _first_answer(daemon)
    await daemon.limit(ceiling)
    await daemon.prepare(share, ceiling, alone=True)
    clients.pipes = daemon.pipes_of(share.name)
    findings.tell("from its start until it has the limits in seconds", time.monotonic() - began)
    await _adds(clients, findings, "a client")
    code, log = await clients.run("mem-hog", "--mib", _MIB * 2, "--chunk", 64)
    match = re.search(r"allocated (\d+) MiB", log)
    granted = int(match[1]) if match else -1
    findings.equal(f"twice the limit of {_MIB} MiB: mem-hog's exit code", _REFUSED, code)
    findings.holds("granted of it in MiB", 0 < granted <= _MIB, f"at most {_MIB}", granted)
    findings.tell("what mem-hog saw", log)
    _, log = await clients.run("bad-access")
    findings.tell("a client that breaks", log)
    await _adds(clients, findings, "a client afterwards")
    burning = clients.start("gpu-burn", "-m", "64", "-stts", "1", _BURN_SECONDS)
    await asyncio.sleep(_BURN_SECONDS / 2)
    await daemon.ask()
    findings.equal("servers while a client burns", 1, len(daemon.servers))
    ended = await asyncio.to_thread(clients.end, burning)
    findings.equal("it burns without an error", True, "GPU 0: OK" in ended)
    await daemon.quit()
    await asyncio.sleep(0.5)
    findings.equal("the daemon runs after it was told to quit", False, daemon.alive)


async def _first_answer(daemon: MpsDaemon) -> None:
    for _ in range(_LOOKS):
        with contextlib.suppress(NoAnswer):
            return await daemon.ask()
        await asyncio.sleep(0.1)
    return await daemon.ask()


async def _adds(clients: _Clients, findings: Findings, who: str) -> None:
    _, log = await clients.run("cuda-vector-add")
    passed = "Test PASSED" if "Test PASSED" in log else log
    findings.equal(f"{who}: cuda-vector-add", "Test PASSED", passed)
