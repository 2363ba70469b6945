"""The driver as the agent knows it: loaded, absent or failing, and what its GPUs are like."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from divvy.agent.driver_root import libraries_problem, library_folder
from divvy.agent.gpu.hardware import Gpu, Snapshot, gpu_from
from divvy.agent.nvml.process import (
    WHOLE_DRIVER,
    DriverAway,
    DriverProblem,
    GpuHangs,
    NvmlProcess,
    Xid,
)
from divvy.agent.nvml.reset import reset_gpu
from divvy.agent.regular_file import read_regular_file
from divvy.agent.timers import next_tick

_log = logging.getLogger(__name__)
_MODULE_SECONDS = 1.0
_DESCRIBE_DEADLINE = 5.0
_CHANGE_DEADLINE = 60.0
_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0)
# A call that never returns is given up with its process after so long, in case a new one is heard.
_HANGING_SECONDS = 300.0
_LINKS_DEADLINE = 10.0


@dataclass(frozen=True)
class _NotDescribed:
    """A GPU that did not answer, or only in part; ``bus_id`` is empty if it is not known."""

    index: int
    bus_id: str
    text: str
    code: int | None = None

    def is_about(self, gpu: Gpu) -> bool:
        return gpu.pci_bus_id == self.bus_id if self.bus_id else gpu.index == self.index


class Driver:
    """Keeps an NVML process up and the last snapshot at hand.

    ``on_change`` is called whenever snapshot or problem became another; ``on_xid`` for each XID
    event; ``on_scan`` after each look at the GPUs, which comes every ``scan_seconds``. ``problem``
    is empty while the driver answers; before the first look there is neither a snapshot nor a
    problem. What one GPU does not answer is its own ``fault``.
    """

    def __init__(
        self,
        root: Path,
        known: Iterable[Gpu],
        on_change: Callable[[], None],
        on_xid: Callable[[Xid], None] = lambda _: None,
        on_scan: Callable[[Snapshot], None] = lambda _: None,
    ) -> None:
        self._root = root
        self._on_change = on_change
        self._on_scan = on_scan
        self._nvml = NvmlProcess(root, on_xid, self._unwatched, self._fail)
        self._module: str | None = ""
        self._known = {gpu.uuid: gpu for gpu in known}
        self._bus_ids: dict[int, str] = {}  # of this process: index → PCI address
        self._watched: set[str] = set()
        self._changes = asyncio.Lock()  # one change at a time; the process stays for its length
        self._changing = ""  # the PCI address of the GPU
        self._resetting: set[str] = set()
        self._starting = asyncio.Lock()
        self._scanning = asyncio.Lock()
        self._scans_started = self._scans_done = 0
        self._linked: tuple[str, ...] = ()
        self.scan_seconds = 10.0
        self.snapshot: Snapshot | None = None
        self.problem = ""

    async def run(self) -> None:
        """Start, watch and replace the NVML process, forever."""
        failures = 0
        next_scan = 0.0
        while True:
            try:
                if await self._follow_module() or not self._nvml.running:
                    next_scan = 0.0
                now = monotonic()
                if now + _MODULE_SECONDS > next_scan:  # the next look would be too late
                    next_scan = now + self.scan_seconds
                    await self.rescan()
                failures = 0
            except DriverProblem as problem:
                self._fail(str(problem))
                await self._nvml.stop()
                pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                await asyncio.sleep(pause)
                continue
            await next_tick(_MODULE_SECONDS)

    async def _follow_module(self) -> bool:
        """Replace the NVML process where the driver is another, or a call never returns."""
        module = loaded_module(self._root)
        if module is not None and self._nvml.running and module != self._module:
            _log.info("the driver changed from %r to %r", self._module, module)
            await self._nvml.stop()
        if module and self._nvml.running and not _is_whole(self._root, module):
            await self._nvml.stop()  # to start it says what is wrong
        since = self._nvml.hanging_since()
        # Once: while the last one cannot be ended, the next one would hang, too.
        replaceable = not self._changing and not self._nvml.unended
        if since is not None and monotonic() - since > _HANGING_SECONDS and replaceable:
            _log.warning("a GPU has not answered for %.0f s: new NVML process", monotonic() - since)
            await self._nvml.stop()
        if self._nvml.running:
            return False
        await self.start()
        return True

    async def start(self) -> None:
        """Start the NVML process where none runs; raises DriverProblem."""
        async with self._starting:
            if self._nvml.running:
                return
            module = loaded_module(self._root)
            if problem := libraries_problem(self._root, module or ""):
                raise DriverProblem(problem)
            version = await self._nvml.start()
            self._module = module
            # Indices belong to a process; while a GPU is reset they are kept, since to look for
            # new ones would open it.
            if not self._resetting:
                self._bus_ids = {}
            self._watched = set()
            _log.info("driver %s answers", version)

    async def rescan(self) -> None:
        """Look at all GPUs again; raises DriverProblem only if the driver itself fails.

        All who ask while a look is under way share the next one: changes of many GPUs end together.
        """
        scans_before = self._scans_started
        async with self._scanning:
            if self._scans_done > scans_before:
                return
            await asyncio.sleep(0)  # who asks at the same instant shares this one
            self._scans_started += 1
            await self._scan()
            self._scans_done = self._scans_started

    async def _scan(self) -> None:
        driver = await self._nvml.call("driver")
        indices = set(self._bus_ids) | (set() if self._resetting else set(range(driver["count"])))
        described = await asyncio.gather(*(self._describe(index) for index in sorted(indices)))
        present = {gpu.uuid: gpu for gpu in described if isinstance(gpu, Gpu)}
        faults = {fault.index: fault for fault in described if isinstance(fault, _NotDescribed)}
        # While a GPU answers, the driver does: what another says of it is its own trouble.
        away = next((fault for fault in faults.values() if fault.code in WHOLE_DRIVER), None)
        if away is not None and len(faults) == len(described):
            raise DriverAway(away.text, away.code)
        unreadable = []
        missing = {uuid: gpu for uuid, gpu in self._known.items() if uuid not in present}
        for index, fault in faults.items():
            known = next((gpu for gpu in missing.values() if fault.is_about(gpu)), None)
            if known is None:
                unreadable.append(f"GPU {index}: {fault.text}")
                continue
            del missing[known.uuid]
            present[known.uuid] = replace(known, lost=False, fault=fault.text)
        present |= {uuid: replace(gpu, lost=True, fault="") for uuid, gpu in missing.items()}
        self._known = dict(present)
        gpus = tuple(sorted(present.values(), key=lambda gpu: (gpu.index, gpu.uuid)))
        self._seen(
            Snapshot(
                driver_version=driver["driver_version"],
                cuda_version=(driver["cuda_version"][0], driver["cuda_version"][1]),
                gpus=gpus,
                links={} if self.snapshot is None else self.snapshot.links,
                simulated=driver["simulated"],
                unreadable=tuple(unreadable),
            )
        )
        self._on_scan(self.snapshot or Snapshot("", (0, 0), ()))
        await self._link(gpus)

    def forget(self, uuids: Iterable[str]) -> None:
        """Forget GPUs that other ones have replaced."""
        gone = set(uuids)
        self._known = {uuid: gpu for uuid, gpu in self._known.items() if uuid not in gone}
        if self.snapshot is not None:
            gpus = tuple(gpu for gpu in self.snapshot.gpus if gpu.uuid not in gone)
            self._seen(replace(self.snapshot, gpus=gpus))

    def _seen(self, snapshot: Snapshot) -> None:
        if snapshot != self.snapshot or self.problem:
            self.snapshot, self.problem = snapshot, ""
            self._on_change()

    async def _describe(self, index: int) -> Gpu | _NotDescribed:
        """Describe one GPU, or say why that cannot be; raises only for the whole driver."""
        bus_id = self._bus_ids.get(index, "")
        if bus_id and (bus_id == self._changing or bus_id in self._resetting):
            at_address = (gpu for gpu in self._known.values() if gpu.pci_bus_id == bus_id)
            known = next((gpu for gpu in at_address if not gpu.lost), None)
            if known is not None:
                return known
        lane = bus_id or f"index {index}"
        named = {"bus_id": bus_id} if bus_id else {"index": index}
        try:
            raw = await self._nvml.call("describe", lane, _DESCRIBE_DEADLINE, **named)
        except DriverProblem as problem:
            if isinstance(problem, DriverAway):
                raise
            return _NotDescribed(index, bus_id, str(problem), problem.code)
        bus_id = self._bus_ids[index] = raw["pci_bus_id"]
        if "error" in raw:
            return _NotDescribed(index, bus_id, raw["error"]["text"], raw["error"]["code"])
        await self._watch(bus_id)
        return gpu_from(raw)

    async def _watch(self, bus_id: str) -> None:
        if bus_id in self._watched:
            return
        # A model without events, or a GPU that fails: each scan covers it.
        with contextlib.suppress(DriverProblem):
            await self._nvml.call("watch", bus_id, _DESCRIBE_DEADLINE, bus_id=bus_id)
            self._watched.add(bus_id)

    async def _link(self, gpus: Iterable[Gpu]) -> None:
        """Score the links between GPUs once for each set of them."""
        by_bus_id = {gpu.pci_bus_id: gpu.uuid for gpu in gpus if not (gpu.lost or gpu.fault)}
        wanted = tuple(sorted(by_bus_id))
        if wanted == self._linked or self._resetting or self.snapshot is None:
            return
        try:
            raw = await self._nvml.call("links", "links", _LINKS_DEADLINE, bus_ids=list(wanted))
        except DriverProblem as problem:
            _log.warning("the links between GPUs are unknown: %s", problem)
            return
        self._linked = wanted
        scores = {frozenset((by_bus_id[a], by_bus_id[b])): score for a, b, score in raw}
        self._seen(replace(self.snapshot, links=scores))

    async def processes(self, gpu: Gpu) -> list[dict[str, int | None]]:
        """List the processes of a GPU (see ``nvml.calls.processes``); raises DriverProblem."""
        return list(await self._on_gpu("processes", gpu, _DESCRIBE_DEADLINE))

    async def readings(self, gpu: Gpu) -> dict[str, dict[str, float]]:
        """Read what the metrics show of a GPU and its MIG devices; raises DriverProblem."""
        return dict(await self._on_gpu("readings", gpu, _DESCRIBE_DEADLINE))

    async def utilisation(self, gpu: Gpu) -> list[dict[str, int]] | None:
        """List how much of a GPU's time each process took (see ``nvml.calls.utilisation``).

        Raises DriverProblem.
        """
        processes = await self._on_gpu("utilisation", gpu, _DESCRIBE_DEADLINE)
        return None if processes is None else list(processes)

    async def compute_mode(self, gpu: Gpu) -> int:
        """Read which processes a GPU takes (nvmlComputeMode_t); raises DriverProblem."""
        return int(await self._on_gpu("compute_mode", gpu, _DESCRIBE_DEADLINE))

    async def change(self, call: str, gpu: Gpu, **args: object) -> dict[str, object]:
        """Make one call that changes a GPU; raises DriverProblem."""
        async with self._changes:
            self._changing = gpu.pci_bus_id
            try:
                return dict(await self._on_gpu(call, gpu, _CHANGE_DEADLINE, **args))
            finally:
                self._changing = ""

    async def _on_gpu(self, call: str, gpu: Gpu, deadline: float, **args: object) -> Any:
        if gpu.pci_bus_id in self._resetting:
            raise GpuHangs("the GPU is being reset")
        known = self._known.get(gpu.uuid, gpu)
        if known.lost or known.pci_bus_id != gpu.pci_bus_id:
            # Its PCI address may be another GPU's since a boot.
            raise DriverProblem("the GPU is lost")
        return await self._nvml.call(call, gpu.pci_bus_id, deadline, bus_id=gpu.pci_bus_id, **args)

    async def reset(self, gpu: Gpu) -> None:
        """Reset a GPU, as Ampere needs for a change of MIG mode; raises DriverProblem.

        A reset fails while anybody has the GPU open. So the NVML process, which has, is replaced
        by one that leaves this GPU alone and goes on looking after the others, however long the
        reset takes.
        """
        self._resetting.add(gpu.pci_bus_id)
        try:
            async with self._changes, self._scanning:
                await self._nvml.stop()
                await self.start()
                await self._scan()  # the new process watches the other GPUs from here on
            await reset_gpu(self._root, gpu.uuid)
        finally:
            self._resetting.discard(gpu.pci_bus_id)

    async def stop(self) -> None:
        """End the NVML process."""
        await self._nvml.stop()

    def _unwatched(self, bus_id: str) -> None:
        self._watched.discard(bus_id)

    def _fail(self, text: str) -> None:
        if text != self.problem:
            _log.warning("driver: %s", text)
            self.problem = text
            self._on_change()


def _is_whole(root: Path, module: str) -> bool:
    return library_folder(root) is not None and not libraries_problem(root, module)


def loaded_module(root: Path) -> str | None:
    """Return the version of the loaded kernel module, "" if none is loaded.

    None if that cannot be told now: no reason to think that it is another.
    """
    try:
        text = read_regular_file(root / "proc/driver/nvidia/version").decode(errors="replace")
    except FileNotFoundError:
        return ""
    except OSError:
        return None
    # "… x86_64 Kernel Module  550.163.01 …", "… Open Kernel Module for x86_64  570.133.20 …"
    match = re.search(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)", text)
    return match.group(1) if match else text.strip()


def boot_id(root: Path) -> str:
    """Return what the kernel calls this boot, "" if it does not tell."""
    for path in (root / "proc/sys/kernel/random/boot_id", Path("/proc/sys/kernel/random/boot_id")):
        with contextlib.suppress(OSError):
            return read_regular_file(path).decode(errors="replace").strip()
    return ""
