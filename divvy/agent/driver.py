"""The driver as the agent knows it: loaded, absent or failing, and what it last showed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

from divvy.agent.hardware import Gpu, Snapshot, snapshot_from
from divvy.agent.nvml.process import DriverAway, DriverProblem, NvmlProcess, Xid

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 1.0
_RESCAN_SECONDS = 30.0
_RETRY_SECONDS = (1.0, 2.0, 5.0, 10.0)
# NVML's return values that concern the driver as a whole: not initialised, not
# loaded, and a library of another version than the kernel module.
_WHOLE_DRIVER = frozenset({1, 9, 18})


class Driver:
    """Keeps a discovery process up and its last snapshot at hand.

    ``changed`` is called whenever snapshot or problem became another; ``on_xid`` for
    each XID event. ``problem`` is empty while the driver answers; before the first look
    there is neither a snapshot nor a problem.
    """

    def __init__(
        self,
        root: Path,
        known: Iterable[Gpu],
        changed: Callable[[], None],
    ) -> None:
        self._root = root
        self._changed = changed
        self._nvml = NvmlProcess(root, self._xid_arrived, self._fail)
        self.on_xid: Callable[[Xid], None] = lambda _: None
        self._module = ""
        self._known = {gpu.uuid: gpu for gpu in known}
        self._lock = asyncio.Lock()
        self.snapshot: Snapshot | None = None
        self.problem = ""

    async def run(self) -> None:
        """Start, watch and replace the discovery process, for ever."""
        failures = 0
        next_scan = 0.0
        loop = asyncio.get_running_loop()
        while True:
            module = loaded_module(self._root)
            if self._nvml.running and module != self._module:
                _log.info("the driver changed from %r to %r", self._module, module)
                await self._nvml.stop()
            try:
                if not self._nvml.running:
                    await self._start(module)
                    next_scan = 0.0
                if loop.time() >= next_scan:
                    await self.rescan()
                    next_scan = loop.time() + _RESCAN_SECONDS
                failures = 0
            except DriverProblem as problem:
                self._fail(str(problem))
                await self._nvml.stop()
                pause = _RETRY_SECONDS[min(failures, len(_RETRY_SECONDS) - 1)]
                failures += 1
                await asyncio.sleep(pause)
                continue
            await asyncio.sleep(_LOOK_SECONDS)

    async def _start(self, module: str) -> None:
        version = await self._nvml.start()
        self._module = module
        await self._nvml.call("watch")
        _log.info("driver %s answers", version)

    async def rescan(self) -> None:
        """Look at the hardware again; raises DriverProblem."""
        async with self._lock:
            found = snapshot_from(await self._nvml.call("snapshot"))
        missing = [gpu for uuid, gpu in self._known.items() if found.gpu(uuid) is None]
        self._known.update({gpu.uuid: gpu for gpu in found.gpus})
        lost = tuple(replace(gpu, lost=True) for gpu in missing)
        gpus = tuple(sorted(found.gpus + lost, key=lambda gpu: (gpu.index, gpu.uuid)))
        snapshot = replace(found, gpus=gpus)
        if snapshot != self.snapshot or self.problem:
            self.snapshot, self.problem = snapshot, ""
            self._changed()

    async def probe(self, uuid: str) -> str | None:
        """Touch one GPU; return what is wrong with it, None when it answers.

        Raises DriverAway where the driver itself is missing or being replaced:
        that is no fault of the GPU, and would keep it withdrawn for the whole
        time of recovery.
        """
        try:
            await self._nvml.call("probe", deadline=5.0, uuid=uuid)
        except DriverAway:
            raise
        except DriverProblem as problem:
            if problem.code in _WHOLE_DRIVER:
                raise DriverAway(str(problem), problem.code) from problem
            return str(problem)
        return None

    async def processes(self, uuid: str) -> list[dict[str, int | None]]:
        """List compute processes of a GPU (see ``nvml.calls.processes``)."""
        return list(await self._nvml.call("processes", uuid=uuid))

    async def readings(self, uuid: str) -> dict[str, float]:
        """Read what the metrics show of a GPU."""
        return dict(await self._nvml.call("readings", deadline=5.0, uuid=uuid))

    async def change(self, call: str, **args: object) -> dict[str, object]:
        """Make one MIG call that changes the GPU; raises DriverProblem."""
        async with self._lock:
            return dict(await self._nvml.call(call, deadline=60.0, **args))

    async def reset(self, uuid: str) -> None:
        """Reset a GPU with nobody of ours on it, as Ampere needs for a change of MIG mode."""
        async with self._lock:
            await self._nvml.stop()
            smi = self._root / "usr/bin/nvidia-smi"
            process = await asyncio.create_subprocess_exec(
                *(str(smi), "--gpu-reset", "-i", uuid),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            output, _ = await process.communicate()
            await self._start(loaded_module(self._root))
        if process.returncode:
            raise DriverProblem(f"reset of {uuid} failed: {output.decode().strip()}")

    async def stop(self) -> None:
        """End the discovery process."""
        await self._nvml.stop()

    def _xid_arrived(self, xid: Xid) -> None:
        self.on_xid(xid)

    def _fail(self, text: str) -> None:
        if text != self.problem:
            _log.warning("driver: %s", text)
            self.problem = text
            self._changed()


def loaded_module(root: Path) -> str:
    """Return the version of the loaded kernel module, "" where it does not tell."""
    with contextlib.suppress(OSError):
        text = (root / "proc/driver/nvidia/version").read_text()
        found = re.search(r"Kernel Module\D*([\d.]+)", text)
        return found.group(1) if found else text.strip()
    return ""


def older(version: str, minimum: str) -> bool:
    """Tell whether a driver version is below a minimum, number by number."""
    return _numbers(version) < _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
