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

from divvy.agent.decide.beyond import InNamespace, Look, NvmlUse, beyond, settled
from divvy.agent.decide.hardware import Gpu
from divvy.agent.decide.share import MAX_DEVICES
from divvy.agent.inject.account import (
    AccountProblem,
    Figures,
    OtherFormat,
    read_account,
    write_beyond,
)
from divvy.agent.inject.share_folder import ShareFolder
from divvy.agent.kubelet.device_holders import DeviceHolders, HoldersUnknown
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.process import DriverProblem
from divvy.agent.ticks import next_tick

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_CLEAN_LOOKS = 60
_PROC = Path("/proc")
_DEVICE = re.compile(
    # A newer agent may have more to say of a device.
    r"^device (\S+) memory (\d+) compute \S+ weight \d+ page \S+ oversubscribed \S+( .*)?$",
    re.MULTILINE,
)


@dataclass(frozen=True)
class ShareFigures:
    """A share as its account tells it: replicas, and by device its UUID, limit and figures."""

    device_ids: tuple[str, ...]
    limits: Mapping[str, int]
    figures: Figures
    folder: Path = Path()


class ShareAccounts:
    """Looks after the accounts of shares; needs the host's PIDs."""

    def __init__(
        self,
        driver: Driver,
        holders: DeviceHolders,
        share_folder: ShareFolder,
        claimed: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._driver = driver
        self._holders = holders
        self._claimed = claimed
        self._share_folder = share_folder
        self._earlier: dict[str, Look] = {}
        self._told: frozenset[str] = frozenset()
        self.figures: Mapping[str, ShareFigures] = {}
        self.unreadable: Mapping[str, tuple[str, ...]] = {}
        """Replicas of the shares whose accounts have another format, by share."""

    async def run(self) -> None:
        """Look for ever."""
        looks = 0
        while True:
            await next_tick(_LOOK_SECONDS)
            shares = self._laid()
            self._told &= frozenset(shares)
            if not shares:
                self.figures, self.unreadable = {}, {}
                continue
            # In a thread: how long a look takes is in the hands of those whose files they are.
            before = await asyncio.to_thread(self._before, shares)
            uses = await self._uses()
            self._earlier, self.figures = await asyncio.to_thread(self._after, before, uses)
            looks += 1
            if looks % _CLEAN_LOOKS == 0:
                with contextlib.suppress(HoldersUnknown):
                    await self._clean()

    def _laid(self) -> dict[str, Path]:
        """Return the folders of all shares by name."""
        folders = self._share_folder.folders
        return {path.name: path for folder in folders for path in folder.glob("shares/*")}

    def _before(self, shares: Mapping[str, Path]) -> dict[str, ShareFigures]:
        self._share_folder.tidy()
        unreadable: dict[str, tuple[str, ...]] = {}
        found = self._read(shares, unreadable)
        self.unreadable = unreadable
        return found

    def _read(
        self, shares: Mapping[str, Path], unreadable: dict[str, tuple[str, ...]]
    ) -> dict[str, ShareFigures]:
        """Read the accounts of shares; those of another format go into ``unreadable``."""
        found = {}
        for name, folder in shares.items():
            try:
                limits = _DEVICE.findall((folder / "limits").read_text())
                figures = read_account(folder / "account")
            except OtherFormat as problem:
                unreadable[name] = _device_ids(folder)
                self._tell(name, problem)
                continue
            except (OSError, AccountProblem):
                continue  # being made, or spoilt by its tenant: then it holds only the tenant up
            sizes = {uuid: int(size) for uuid, size, *_ in limits}
            found[name] = ShareFigures(_device_ids(folder), sizes, figures, folder)
        return found

    def _tell(self, name: str, problem: OtherFormat) -> None:
        """Log it once for each share: its tenant can spoil its account as often as it likes."""
        if name not in self._told:
            self._told |= {name}
            _log.warning("%s: the figures of this share are not known", problem)

    def _after(
        self, before: Mapping[str, ShareFigures], uses: list[tuple[InNamespace, str, int]]
    ) -> tuple[dict[str, Look], dict[str, ShareFigures]]:
        after = self._read({name: share.folder for name, share in before.items()}, {})
        looked: dict[str, Look] = {}
        for name, share in after.items():
            devices = {uuid: at for at, uuid in enumerate(share.limits)}
            of_share = [
                NvmlUse(process, devices[uuid], used)
                for process, uuid, used in uses
                if uuid in devices
            ]
            now = looked[name] = beyond(of_share, _slots(before[name]), _slots(share), MAX_DEVICES)
            agreed = settled(now, self._earlier.get(name, {}))
            figures = {
                slot: agreed[InNamespace(slot.pid_namespace, slot.pid)]
                for slot in share.figures.slots
            }
            with contextlib.suppress(AccountProblem):
                write_beyond(share.folder / "account", figures, (0,) * MAX_DEVICES)
        return looked, after

    async def _uses(self) -> list[tuple[InNamespace, str, int]]:
        uses = []
        gpus = () if self._driver.snapshot is None else self._driver.snapshot.gpus
        for gpu in gpus:
            if gpu.present:
                with contextlib.suppress(DriverProblem):  # of this GPU: the others are looked at
                    uses += await self._uses_of(gpu)
        return uses

    async def _uses_of(self, gpu: Gpu) -> list[tuple[InNamespace, str, int]]:
        by_gi = {instance.gi: instance.uuid for instance in gpu.instances}
        uses = []
        for listed in await self._driver.processes(gpu):
            process = in_namespace(listed["pid"] or 0)
            if process is not None:
                device = by_gi.get(listed["gi"] or 0) or gpu.uuid
                uses.append((process, device, (listed["used_mib"] or 0) << 20))
        return uses

    async def _clean(self) -> None:
        """Remove the files of shares that no container holds and no process uses."""
        held = {holder.device_id for holder in await self._holders.holders()} | self._claimed()
        for name, folder in self._laid().items():
            share = self.figures.get(name)
            of = _device_ids(folder)
            # A container holds all replicas of its share, or none.
            is_held = bool(of) and held.issuperset(of)
            if not is_held and not (share and share.figures.slots):
                shutil.rmtree(folder, ignore_errors=True)
                for page in folder.parent.parent.glob(f"pages/*/{name}-*"):
                    _remove(page)


def in_namespace(pid: int) -> InNamespace | None:
    """Return a process of the host as its own namespace knows it; None where it has ended."""
    try:
        status = (_PROC / str(pid) / "status").read_text()
        namespace = (_PROC / str(pid) / "ns/pid").readlink().name
        # A line of its own: a process may call itself "NSpid:".
        numbers = re.findall(r"^NSpid:\s(.*)$", status, re.MULTILINE)[0].split()
        return InNamespace(int(namespace.removeprefix("pid:[").removesuffix("]")), int(numbers[-1]))
    except (OSError, ValueError, IndexError):
        return None


def _remove(path: Path) -> None:
    """Remove a file, or the folder that a container runtime made where there was none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _device_ids(share: Path) -> tuple[str, ...]:
    """Return whose files these are; nobody's where the folder was never finished."""
    try:
        return tuple((share / "devices").read_text().split())
    except OSError:
        return ()


def _slots(share: ShareFigures) -> Look:
    return {
        InNamespace(slot.pid_namespace, slot.pid): slot.allocated for slot in share.figures.slots
    }
