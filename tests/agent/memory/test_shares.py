"""The files of limited shares: looked after, and removed, whatever their tenants make of them."""

from __future__ import annotations

import asyncio
import errno
import os
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.containers import Member, Process
from divvy.agent.gpu.holders import Holder
from divvy.agent.inject.limiter import write_share
from divvy.agent.inject.share import share_name
from divvy.agent.inject.share_folder import ShareFolder
from divvy.agent.inject.share_usage import read_account
from divvy.agent.memory.shares import ShareAccounts, in_namespace
from divvy.agent.memory.unaccounted_memory import InNamespace
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.plugin.device_holders import HoldersUnknown
from divvy.agent.processes import find_process
from lab.fakes.scene import until
from tests.agent.devices import device_share, gpu, snapshot
from tests.agent.inject.test_share_usage import lock

_NAMED = """
import sys, time
open("/proc/self/comm", "wb").write(sys.argv[1].encode("latin-1"))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("name", ["NSpid:\t4711", "\rNSpid:\t4711", "\xff"])
def test_reads_the_pid_of_a_process_that_calls_itself_a_number(name: str) -> None:
    """Else what it uses would be charged to another, or not at all."""
    command = [sys.executable, "-X", "utf8", "-c", _NAMED, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process_ids = in_namespace(process.pid)
        process.kill()
    assert process_ids is not None
    assert process_ids.pid == process.pid


class Held:
    """What the kubelet shows."""

    last: tuple[Holder, ...] = ()

    def __init__(self) -> None:
        self.device_ids: tuple[str, ...] | None = ()

    async def holders(self) -> tuple[Any, ...]:
        if self.device_ids is None:
            raise HoldersUnknown("the kubelet does not answer")
        return tuple(SimpleNamespace(device_id=device_id) for device_id in self.device_ids)


def laid(folder: Path, *device_ids: str, page: str = "page") -> Path:
    """Lay the files of a share of these devices, as an agent before did; return their folder."""
    write_share(folder, device_ids, [device_share("GPU-0", 1000, "share", 25, page)])
    return folder / "shares" / share_name(device_ids)


async def cleaned(
    folder: Path,
    held: Held,
    monkeypatch: pytest.MonkeyPatch,
    claimed: frozenset[str] = frozenset(),
) -> None:
    """Let it look twice, and clean after each."""
    monkeypatch.setattr("divvy.agent.memory.shares._LOOK_SECONDS", 0.01)
    monkeypatch.setattr("divvy.agent.memory.shares._CLEAN_LOOKS", 1)
    driver: Any = SimpleNamespace(snapshot=None)
    accounts = ShareAccounts(
        driver,
        held,  # type: ignore[arg-type]
        ShareFolder(folder),
        folder / "logs",
        lambda: dict.fromkeys(claimed, ()),
    )
    loop = asyncio.create_task(accounts.run())
    await asyncio.sleep(0.5)
    assert not loop.done()
    loop.cancel()


@pytest.mark.parametrize("spoilt", [False, True])
def test_removes_the_files_of_a_share_without_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoilt: bool
) -> None:
    folder = laid(tmp_path, "GPU-0::0")
    (tmp_path / "pages/GPU-0/page").rename(tmp_path / f"pages/GPU-0/{folder.name}-0")
    if spoilt:
        (folder / "account").write_bytes(b"")
    held = Held()
    for held.device_ids in (None, ("GPU-0::0",)):
        asyncio.run(cleaned(tmp_path, held, monkeypatch))
        assert folder.exists()
    held.device_ids = ("GPU-0::1",)
    asyncio.run(cleaned(tmp_path, held, monkeypatch))
    assert not folder.exists()
    assert not any((tmp_path / "pages/GPU-0").iterdir())


def test_removes_a_share_of_two_replicas_when_one_is_held_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = laid(tmp_path, "GPU-0::0", "GPU-0::1")
    held = Held()
    held.device_ids = ("GPU-0::0", "GPU-0::1")
    asyncio.run(cleaned(tmp_path, held, monkeypatch))
    assert folder.exists()
    held.device_ids = ("GPU-0::0",)
    asyncio.run(cleaned(tmp_path, held, monkeypatch))
    assert not folder.exists()


@pytest.mark.parametrize("content", [b"", b"\1" * 200_000])
async def test_reports_an_account_of_another_format_once_until_it_is_sound(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    content: bytes,
) -> None:
    monkeypatch.setattr("divvy.agent.memory.shares._LOOK_SECONDS", 0.01)
    folder, _ = laid(tmp_path, "GPU-0::0"), laid(tmp_path, "GPU-0::1")
    sound = (folder / "account").read_bytes()
    (folder / "account").write_bytes(content)
    unfinished = tmp_path / "shares/unfinished"  # by an Allocate that is under way
    unfinished.mkdir()
    (unfinished / "limits").touch()
    driver: Any = SimpleNamespace(snapshot=None)
    held: Any = Held()
    accounts = ShareAccounts(driver, held, ShareFolder(tmp_path), tmp_path / "logs")
    loop = asyncio.create_task(accounts.run())
    await until(lambda: accounts.unreadable == {folder.name: ("GPU-0::0",)})
    await until(lambda: len(accounts.figures) == 1)
    (folder / "account").write_bytes(sound)
    await until(lambda: not accounts.unreadable and len(accounts.figures) == 2)
    (folder / "account").write_bytes(content)
    await until(lambda: bool(accounts.unreadable))
    loop.cancel()
    (line,) = caplog.messages
    assert f"{folder / 'account'}: an account in a different format" in line


def test_keeps_the_files_of_a_claims_share_while_it_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet shows no device of a claim."""
    folder = laid(tmp_path, "claim:uid")
    asyncio.run(cleaned(tmp_path, Held(), monkeypatch, frozenset({"claim:uid"})))
    assert folder.exists()
    asyncio.run(cleaned(tmp_path, Held(), monkeypatch))
    assert not folder.exists()


def test_gives_a_share_again_after_its_files_were_removed_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The container runtime makes folders of the files that it is to mount and does not find."""
    folder = laid(tmp_path, "GPU-0::0")
    name = f"{folder.name}-0"
    for file in (folder / "limits", folder / "account", tmp_path / "pages/GPU-0" / name):
        file.unlink(missing_ok=True)
        file.mkdir()
    asyncio.run(cleaned(tmp_path, Held(), monkeypatch))
    laid(tmp_path, "GPU-0::0", page=name)


def test_denies_other_users_access_to_a_tenants_files(tmp_path: Path) -> None:
    """Root in a container can write a program into its account, and give it the rights of root."""
    laid(tmp_path, "GPU-0::0")
    for name in ("shares", "pages"):
        assert (tmp_path / name).stat().st_mode & 0o077 == 0


POD, OTHER_POD = "0e9a1b8c-0000-0000-0000-000000000001", "0e9a1b8c-0000-0000-0000-000000000002"
MINE, THEIRS = "a" * 64, "b" * 64
NAMESPACE = 4026531836


class Node:
    """Two shares of a GPU and the processes that NVML names, by host PID: (container, MiB)."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.processes = {100: (MINE, 300), 200: (THEIRS, 700)}
        monkeypatch.setattr("divvy.agent.memory.shares._LOOK_SECONDS", 0.01)
        monkeypatch.setattr("divvy.agent.memory.shares.find_process", self._process_and_member)
        monkeypatch.setattr(
            "divvy.agent.memory.shares.in_namespace", lambda pid: InNamespace(NAMESPACE, pid)
        )
        logs = folder / "logs"
        logs.mkdir()
        for pod, container in (("mine", MINE), ("theirs", THEIRS)):
            (logs / f"{pod}_team_main-{container}.log").touch()
        for number in range(2):
            write_share(folder, [f"GPU-0::{number}"], [device_share("GPU-0", 1000)])
        held = Held()
        held.last = (
            Holder("team/mine", "main", "nvidia.com/gpu.shared", "GPU-0::0", POD),
            Holder("team/theirs", "main", "nvidia.com/gpu.shared", "GPU-0::1", OTHER_POD),
        )
        driver = SimpleNamespace(snapshot=snapshot(gpu(0)), processes=self._listed)
        self.accounts = ShareAccounts(driver, held, ShareFolder(folder), logs)  # type: ignore[arg-type]
        self.mine, self.theirs = (
            folder / "shares" / share_name([f"GPU-0::{number}"]) / "account" for number in range(2)
        )

    def _process_and_member(self, pid: int) -> tuple[Process, Member]:
        container, _ = self.processes[pid]
        return Process(pid, 1), Member(POD if container == MINE else OTHER_POD, container)

    async def _listed(self, _: object) -> list[dict[str, Any]]:
        return [
            {"pid": pid, "used_mib": mib, "gi": None} for pid, (_, mib) in self.processes.items()
        ]

    async def charged(self, mine: int, theirs: int) -> None:
        """Wait until the shares are charged so much, in MiB, and see that it stays so."""
        loop = asyncio.create_task(self.accounts.run())

        def is_so() -> bool:
            used = (read_account(path).used[0] >> 20 for path in (self.mine, self.theirs))
            return tuple(used) == (mine, theirs)

        # A process that gets a slot is counted by neither way for one look: two have to agree.
        steady = 0
        async with asyncio.timeout(30):
            while steady < 20:
                await asyncio.sleep(0.02)
                steady = steady + 1 if is_so() else 0
        loop.cancel()


@contextmanager
def slot(account: Path, pid: int) -> Iterator[None]:
    """Have the first slot of an account, for a process that may be another's."""
    with account.open("r+b") as file:
        file.seek(4)
        file.write((1).to_bytes(4, "little"))
        file.seek(8 + 5 * 128)
        file.write(struct.pack("<IIQ", pid, 0, NAMESPACE))
        file.flush()
        lock(file.fileno(), 1)
        yield


def test_charges_processes_without_a_slot_to_their_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who opens the driver's library itself has no slot, and is in the share's container."""
    node = Node(tmp_path, monkeypatch)
    asyncio.run(node.charged(300, 700))
    del node.processes[200]
    asyncio.run(node.charged(300, 0))


def test_hides_neighbours_processes_from_a_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant can write a neighbour's namespace and number into a slot; both can be guessed."""
    node = Node(tmp_path, monkeypatch)
    with slot(node.mine, 200):
        asyncio.run(node.charged(300, 700))
    with slot(node.mine, 100), slot(node.theirs, 200):
        asyncio.run(node.charged(300, 700))


def test_charges_no_pod_before_it_knows_the_shares_holder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch)
    asyncio.run(node.charged(300, 700))
    node.accounts._holders.last = ()  # type: ignore[misc]
    asyncio.run(node.charged(300, 700))


def test_charges_a_share_as_before_while_the_driver_does_not_list_its_gpus_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, monkeypatch)
    asyncio.run(node.charged(300, 700))

    async def no_answer(_: object) -> list[dict[str, Any]]:
        raise DriverProblem("NVML does not answer")

    node.accounts._driver.processes = no_answer  # type: ignore[method-assign]
    asyncio.run(node.charged(300, 700))


def test_keeps_the_files_of_a_share_whose_holder_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent without a file descriptor left cannot read whose they are."""
    folder = laid(tmp_path, "GPU-0::0")
    held = Held()
    held.device_ids = ("GPU-0::0",)
    read_text = Path.read_text

    def refused(path: Path, *arguments: Any) -> str:
        if path.name == "devices":
            raise OSError(errno.EMFILE, "Too many open files")
        return read_text(path, *arguments)

    monkeypatch.setattr(Path, "read_text", refused)
    asyncio.run(cleaned(tmp_path, held, monkeypatch))
    assert folder.exists()


@pytest.mark.parametrize("look", [in_namespace, find_process])
def test_does_not_take_a_process_that_cannot_be_looked_at_for_one_that_has_ended(
    look: Callable[[int], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it uses would be nobody's, and below every limit."""

    def refuse(_path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        look(os.getpid())
