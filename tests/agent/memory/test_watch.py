"""Who is above a memory limit is ended in time, whatever the API server does."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from types import SimpleNamespace
from typing import Any, cast

import pytest

from divvy.agent.containers import Member, Process
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.holders import Holder
from divvy.agent.memory import watch
from divvy.agent.memory.memory_limit import Excess
from divvy.agent.memory.watch import MemoryWatch
from divvy.agent.nvml.process import DriverProblem
from divvy.kube import backoff
from divvy.kube.errors import ApiError
from divvy.model.sharing import Sharing
from lab.fakes.scene import running, until
from tests.agent.devices import gpu, snapshot

CONTAINER = "c" * 64
PROCESSES = [Process(number, 1) for number in (11, 12, 13)]


class SilentApi:
    """Does not answer: every Event waits. Or it refuses some, and then takes them."""

    def __init__(self, refusals: int = 0) -> None:
        self.waiting = 0
        self.refusals = refusals
        self.recorded: list[str] = []

    async def pod_event(self, pod: str, *_: str) -> None:
        if self.refusals:
            self.refusals -= 1
            if not self.refusals:
                self.recorded.append(pod)
                return
            raise ApiError(429, "too many requests")
        self.waiting += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.waiting -= 1


async def claimed() -> dict[str, Any]:
    return {}


async def no_client(uuid: str, pid: int) -> None:
    """Terminate no client: the GPU has no MPS daemon."""


def looking(
    api: SilentApi,
    excesses_of: Callable[[], tuple[Excess, ...]],
    terminate_client: Callable[[str, int], Awaitable[None]] = no_client,
) -> MemoryWatch:
    """Return a watch that finds these containers above an enforced limit."""

    async def excesses(*_: object) -> tuple[tuple[Excess, ...], str]:
        return excesses_of(), ""

    limited = SimpleNamespace(sharing=Sharing(2, memory_mib=1, action="enforce"), name="r")
    plugins = SimpleNamespace(advertised=lambda: [limited])
    make: Any = MemoryWatch
    watch = make(None, plugins, None, api, None, claimed, terminate_client)
    watch._excesses = excesses
    return cast(MemoryWatch, watch)


@pytest.fixture(name="sent")
def _sent(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Process, Signals]]:
    """Return the signals that are sent; five seconds pass at each look."""
    sent: list[tuple[Process, Signals]] = []

    def send(process: Process, number: Signals) -> bool:
        sent.append((process, number))
        return True

    clock = itertools.count(0, 5)
    monkeypatch.setattr(watch, "send", send)
    monkeypatch.setattr(watch, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(watch, "monotonic", lambda: float(next(clock)))
    return sent


ALL = tuple(
    Excess("ns/p", "uid", f"c{process.pid}", "r", "GPU-0", 9, 1, True, (process,))
    for process in PROCESSES
)


async def test_terminates_without_waiting_for_a_silent_api_server(
    sent: list[tuple[Process, Signals]],
) -> None:
    api = SilentApi()
    async with running(looking(api, lambda: ALL).run()):
        await until(lambda: len(sent) >= 6, 5)
        # A busy machine lets the watch look once more before this is read.
        assert sent[:6] == [
            (process, number) for number in (SIGTERM, SIGKILL) for process in PROCESSES
        ]
        # Each is reported once, and with the watch its reports end.
        assert api.waiting == 3
    await asyncio.sleep(0)
    assert api.waiting == 0


@pytest.mark.usefixtures("sent")
async def test_retries_a_refused_event_after_the_container_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(backoff, "_PAUSE_SECONDS", 0.02)
    looks = itertools.chain([ALL[:1]], itertools.repeat(()))
    api = SilentApi(refusals=5)
    async with running(looking(api, lambda: next(looks)).run()):
        await until(lambda: api.recorded, 5)


@pytest.mark.usefixtures("sent")
async def test_limits_pending_events_per_container() -> None:
    looks = itertools.cycle([ALL, ()])
    api = SilentApi()
    async with running(looking(api, lambda: next(looks)).run()):
        await asyncio.sleep(0.5)
        assert api.waiting == 3


async def test_terminates_a_client_of_mps_before_its_process(
    sent: list[tuple[Process, Signals]],
) -> None:
    terminated: list[tuple[str, int, int]] = []

    async def terminate(uuid: str, pid: int) -> None:
        await asyncio.sleep(0.05)
        terminated.append((uuid, pid, len(sent)))

    async with running(looking(SilentApi(), lambda: ALL[:1], terminate).run()):
        await until(lambda: len(sent) >= 2, 5)
    # How many signals were sent before: none, then SIGTERM.
    assert terminated[:2] == [("GPU-0", 11, 0), ("GPU-0", 11, 1)]


class Node:
    """A GPU with one process that uses 9 MiB of its 1 MiB, as NVML and the kubelet tell."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes: list[dict[str, Any]] | Exception = [{"pid": 11, "gi": None, "used_mib": 9}]
        self.logs = folder
        (folder / f"p_ns_main-{CONTAINER}.log").touch()
        monkeypatch.setattr(
            watch, "find_process", lambda pid: (Process(pid, 1), Member("uid", CONTAINER))
        )
        limited = SimpleNamespace(sharing=Sharing(2, memory_mib=1, action="enforce"), name="r")
        self.plugins = SimpleNamespace(advertised=lambda: [limited])
        self.snapshot = snapshot(gpu(0))
        self.problem = ""

    async def listed(self, _gpu: Gpu) -> list[dict[str, Any]]:
        if isinstance(self.processes, Exception):
            raise self.processes
        return self.processes

    async def holders(self) -> tuple[Holder, ...]:
        return (Holder("ns/p", "main", "r", "GPU-0::0", "uid"),)

    def watch(self) -> MemoryWatch:
        driver = SimpleNamespace(snapshot=self.snapshot, processes=self.listed)
        holders = SimpleNamespace(holders=self.holders)
        make: Any = MemoryWatch
        watching = make(driver, self.plugins, holders, SilentApi(), self.logs, claimed, no_client)
        return cast(MemoryWatch, watching)


async def test_does_not_take_back_what_it_told_while_the_driver_does_not_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: list[tuple[Process, Signals]]
) -> None:
    """An alert would end, and begin again. Nobody is ended by what is not known to be so still."""
    node = Node(tmp_path, monkeypatch)
    memory_watch = node.watch()
    async with running(memory_watch.run()):
        await until(lambda: len(memory_watch.excesses) == 1 and bool(sent), 5)
        node.processes = DriverProblem("NVML does not answer")
        await asyncio.sleep(0.1)
        before = len(sent)
        assert [excess.used_mib for excess in memory_watch.excesses] == [9]
        await asyncio.sleep(0.2)
        assert len(sent) == before
        assert [excess.used_mib for excess in memory_watch.excesses] == [9]
        node.processes = []
        await until(lambda: not memory_watch.excesses, 5)


@pytest.mark.usefixtures("sent")
async def test_says_why_limits_are_not_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch)
    memory_watch = node.watch()
    async with running(memory_watch.run()):
        await until(lambda: len(memory_watch.excesses) == 1, 5)
        assert not memory_watch.problem
        node.processes = [{"pid": 11, "gi": None, "used_mib": None}]
        await until(lambda: "GPU 0" in memory_watch.problem, 5)
        assert "the driver does not tell how much memory" in memory_watch.problem
        node.processes = [{"pid": 11, "gi": None, "used_mib": 0}]
        await until(lambda: not memory_watch.problem, 5)
        memory_watch._container_logs = tmp_path / "gone"
        await until(lambda: "No such file" in memory_watch.problem, 5)
