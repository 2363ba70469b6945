"""Once a second, NVML's figures go into the accounts of limited shares; what is over is removed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from divvy.agent.containers import Container, Member, containers_by_id, is_of
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.holders import Holder
from divvy.agent.inject.share import MAX_DEVICES
from divvy.agent.inject.share_folder import ShareFolder
from divvy.agent.inject.share_usage import (
    AccountProblem,
    Figures,
    OtherFormat,
    read_account,
    write_beyond,
)
from divvy.agent.memory.unaccounted_memory import (
    InNamespace,
    Look,
    NvmlUse,
    beyond,
    outside,
    settled,
)
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.plugin.device_holders import DeviceHolders, HoldersUnknown
from divvy.agent.processes import find_process
from divvy.agent.regular_file import read_regular_file
from divvy.agent.timers import next_tick
from divvy.model.sharing import parse_limits

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_CLEAN_LOOKS = 60
_PROC = Path("/proc")


@dataclass(frozen=True)
class ShareFigures:
    """A share as its account tells it: replicas, and by device its UUID, limit and figures."""

    device_ids: tuple[str, ...]
    limits: Mapping[str, int]
    figures: Figures
    folder: Path = Path()


@dataclass(frozen=True)
class _Use:
    """What NVML tells of one process in a container, in bytes on one device."""

    process: InNamespace
    where: Member
    uuid: str
    used: int


class ShareAccounts:
    """Looks after the accounts of shares; needs the host's PIDs."""

    def __init__(
        self,
        driver: Driver,
        holders: DeviceHolders,
        share_folder: ShareFolder,
        container_logs: Path,
        claimed: Callable[[], Mapping[str, tuple[Holder, ...]]] = dict,
    ) -> None:
        self._driver = driver
        self._holders = holders
        self._claimed = claimed
        self._share_folder = share_folder
        self._container_logs = container_logs
        self._containers: Mapping[str, Container] = {}
        self._outside: dict[str, tuple[int, ...]] = {}
        self._earlier: dict[str, Look] = {}
        self._reported_shares: frozenset[str] = frozenset()
        self.figures: Mapping[str, ShareFigures] = {}
        self.unreadable: Mapping[str, tuple[str, ...]] = {}
        """Replicas of the shares whose accounts have another format, by share."""

    async def run(self) -> None:
        """Look once a second; never returns."""
        looks = 0
        while True:
            await next_tick(_LOOK_SECONDS)
            shares = self._laid()
            self._reported_shares &= frozenset(shares)
            if not shares:
                self.figures, self.unreadable = {}, {}
                continue
            # In a thread: how long a look takes is in the hands of those whose files they are.
            before = await asyncio.to_thread(self._before, shares)
            uses, unlisted = await self._uses()
            whose = {
                name: () if unlisted & before[name].limits.keys() else holders
                for name, holders in self._whose(before).items()
            }
            self.figures = await asyncio.to_thread(self._after, before, uses, whose)
            looks += 1
            if looks % _CLEAN_LOOKS == 0:
                with contextlib.suppress(HoldersUnknown):
                    await self._clean()

    def _laid(self) -> dict[str, Path]:
        """Return the folders of all shares by name."""
        return {path.name: path for path in self._share_folder.folder.glob("shares/*")}

    def _before(self, shares: Mapping[str, Path]) -> dict[str, ShareFigures]:
        self._share_folder.tidy()
        unreadable: dict[str, tuple[str, ...]] = {}
        accounts = self._read(shares, unreadable)
        self.unreadable = unreadable
        return accounts

    def _read(
        self, shares: Mapping[str, Path], unreadable: dict[str, tuple[str, ...]]
    ) -> dict[str, ShareFigures]:
        """Read the accounts of shares; those of another format go into ``unreadable``."""
        accounts = {}
        for name, folder in shares.items():
            try:
                device_ids = _device_ids(folder)
                shares_of = parse_limits(read_regular_file(folder / "limits").decode())
                figures = read_account(folder / "account")
            except OtherFormat as problem:
                unreadable[name] = device_ids
                self._tell(name, problem)
                continue
            except (OSError, ValueError, AccountProblem):
                continue  # being made, or spoilt by its tenant: then it holds only the tenant up
            sizes = {share.uuid: share.memory_mib << 20 for share in shares_of}
            accounts[name] = ShareFigures(device_ids, sizes, figures, folder)
        return accounts

    def _tell(self, name: str, problem: OtherFormat) -> None:
        """Log it once for each share: its tenant can spoil its account as often as it likes."""
        if name not in self._reported_shares:
            self._reported_shares |= {name}
            _log.warning("%s: the figures of this share are not known", problem)

    def _after(
        self,
        before: Mapping[str, ShareFigures],
        uses: list[_Use],
        whose: Mapping[str, tuple[Holder, ...]],
    ) -> dict[str, ShareFigures]:
        after = self._read({name: share.folder for name, share in before.items()}, {})
        own = self._own(after, uses, whose)
        slots = {name: (_slots(before[name]), _slots(after[name])) for name in own}
        # In any share of its own: a container may have two.
        slotted = {
            use.process
            for name, mine in own.items()
            for use in mine
            if any(use.process in look for look in slots[name])
        }
        looked: dict[str, Look] = {}
        unslotted: dict[str, tuple[int, ...]] = {}
        for name, mine in own.items():
            now = looked[name] = beyond(mine, *slots[name], MAX_DEVICES)
            unslotted[name] = outside(mine, slotted, MAX_DEVICES)
            agreed = settled(now, self._earlier.get(name, {}))
            figures = {
                slot: agreed[InNamespace(slot.pid_namespace, slot.pid)]
                for slot in after[name].figures.slots
            }
            # A process that ends loses its slot before NVML forgets it.
            earlier = self._outside.get(name, (0,) * MAX_DEVICES)
            both = tuple(map(min, unslotted[name], earlier))
            with contextlib.suppress(AccountProblem):
                write_beyond(after[name].folder / "account", figures, both)
        self._earlier, self._outside = looked, unslotted
        return after

    def _own(
        self,
        shares: Mapping[str, ShareFigures],
        uses: list[_Use],
        whose: Mapping[str, tuple[Holder, ...]],
    ) -> dict[str, list[NvmlUse]]:
        """Return what processes of each share's own containers use, where these are known."""
        containers = self._named({use.where.container_id for use in uses})
        own: dict[str, list[NvmlUse]] = {}
        for name, share in shares.items():
            if not whose[name]:
                continue  # not known: what was told stays
            devices = {uuid: at for at, uuid in enumerate(share.limits)}
            own[name] = [
                NvmlUse(use.process, devices[use.uuid], use.used)
                for use in uses
                if use.uuid in devices
                and is_of(use.where, containers.get(use.where.container_id), whose[name])
            ]
        return own

    def _whose(self, shares: Mapping[str, ShareFigures]) -> dict[str, tuple[Holder, ...]]:
        """Return who has each share, as far as it is known."""
        claimed, last = self._claimed(), self._holders.last
        held: dict[str, list[Holder]] = {}
        for holder in last:
            held.setdefault(holder.device_id, []).append(holder)
        return {
            name: tuple(
                holder
                for device_id in share.device_ids
                for holder in (*held.get(device_id, ()), *claimed.get(device_id, ()))
            )
            for name, share in shares.items()
        }

    def _named(self, container_ids: set[str]) -> Mapping[str, Container]:
        """Return containers by their IDs; those that are known need no other look."""
        if not container_ids <= self._containers.keys():
            with contextlib.suppress(OSError):
                names = [link.name for link in self._container_logs.iterdir()]
                self._containers = containers_by_id(names)
        return self._containers

    async def _uses(self) -> tuple[list[_Use], set[str]]:
        """Return what processes use, and the GPUs and MIG devices whose processes are not known."""
        uses: list[_Use] = []
        unlisted: set[str] = set()
        gpus = () if self._driver.snapshot is None else self._driver.snapshot.gpus
        for gpu in gpus:
            try:
                uses += await self._uses_of(gpu) if gpu.present else ()
            except (DriverProblem, OSError):  # of this GPU: the others are looked at
                unlisted |= gpu.uuids
        return uses, unlisted

    async def _uses_of(self, gpu: Gpu) -> list[_Use]:
        by_gi = {instance.gi: instance.uuid for instance in gpu.instances}
        uses = []
        for listed in await self._driver.processes(gpu):
            pid = listed["pid"] or 0
            process, host_process = in_namespace(pid), find_process(pid)
            if process is not None and host_process is not None:
                device = by_gi.get(listed["gi"] or 0) or gpu.uuid
                # None: not told. What is told of others of its container counts.
                used = (listed["used_mib"] or 0) << 20
                uses.append(_Use(process, host_process[1], device, used))
        return uses

    async def _clean(self) -> None:
        """Remove the files of shares that no container holds and no process uses."""
        held = {holder.device_id for holder in await self._holders.holders()}
        held |= self._claimed().keys()
        for name, folder in self._laid().items():
            share = self.figures.get(name)
            try:
                of = _device_ids(folder)
            except OSError:
                continue  # whose they are is not known
            # A container holds all replicas of its share, or none.
            is_held = bool(of) and held.issuperset(of)
            if not is_held and not (share and share.figures.slots):
                shutil.rmtree(folder, ignore_errors=True)
                for page in folder.parent.parent.glob(f"pages/*/{name}-*"):
                    _remove(page)


def in_namespace(pid: int) -> InNamespace | None:
    """Return a process of the host as its own namespace knows it; None if it has ended.

    Raises OSError where that cannot be told.
    """
    try:
        status = (_PROC / str(pid) / "status").read_bytes()
        namespace = (_PROC / str(pid) / "ns/pid").readlink().name
        # A line of its own: a process may call itself "NSpid:", and what would be a line in a text.
        numbers = re.findall(rb"^NSpid:\s(.*)$", status, re.MULTILINE)[0].split()
        return InNamespace(int(namespace.removeprefix("pid:[").removesuffix("]")), int(numbers[-1]))
    except (FileNotFoundError, ProcessLookupError, ValueError, IndexError):
        return None


def _remove(path: Path) -> None:
    """Remove a file, or the folder that a container runtime made in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _device_ids(share: Path) -> tuple[str, ...]:
    """Return whose files these are; empty if the folder was never finished. Raises OSError."""
    try:
        return tuple(read_regular_file(share / "devices").decode(errors="replace").split())
    except FileNotFoundError:
        return ()


def _slots(share: ShareFigures) -> Look:
    return {
        InNamespace(slot.pid_namespace, slot.pid): slot.allocated for slot in share.figures.slots
    }
