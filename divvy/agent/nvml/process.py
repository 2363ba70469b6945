"""The agent's end of the NVML process: start, call with a deadline, replace."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divvy.agent.driver_root import nvml_library

_log = logging.getLogger(__name__)
# A process inside a driver call that never returns cannot even be killed.
_KILL_SECONDS = 2.0
# Such a process keeps its memory, and another would hang, too.
_MAX_HANGING = 3
# What has come from the child is read within so many passes of the event loop.
_READING_PASSES = 5
# The lane of calls that concern no single GPU.
SYSTEM = ""


# NVML's return values that concern the driver as a whole: not initialised, not loaded, and a
# library of another version than the kernel module.
WHOLE_DRIVER = frozenset({1, 9, 18})


class DriverProblem(Exception):
    """The driver could not answer: absent, failed, of another version, or hanging.

    ``code`` is the NVML return value where there is one.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class DriverAway(DriverProblem):
    """There is no process to ask: says nothing about any GPU."""


class GpuHangs(DriverProblem):
    """One GPU does not answer; the others may."""


@dataclass(frozen=True)
class Xid:
    """One XID event of a GPU, or of one of its GPU instances (``gi`` None: all of the GPU)."""

    number: int
    uuid: str
    gi: int | None


@dataclass(frozen=True)
class _Hanging:
    """A call that is past its deadline: its number, what it is, and since when (monotonic)."""

    number: int
    name: str
    since: float


class NvmlProcess:
    """Runs NVML calls in a child process, each GPU's in a lane of its own.

    A call past its deadline makes its lane *hang* until the call returns after all: calls of that
    lane fail at once meanwhile. Past the deadline of a system call, the child is ended.
    ``on_xid`` is called in the event loop for each XID event; ``on_unwatched`` with the PCI
    address of a GPU whose events have stopped; ``on_end`` when the child ends without being
    told to.
    """

    def __init__(
        self,
        root: Path,
        on_xid: Callable[[Xid], None],
        on_unwatched: Callable[[str], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._root = root
        self._on_xid = on_xid
        self._on_unwatched = on_unwatched
        self._on_end = on_end
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._hanging: dict[str, _Hanging] = {}
        self._unended: list[asyncio.subprocess.Process] = []
        self._last_id = 0

    @property
    def running(self) -> bool:
        """Return whether a child is up."""
        return self._child is not None

    def hanging_since(self) -> float | None:
        """Return since when the longest hanging lane hangs (monotonic), None if none does."""
        return min((lane.since for lane in self._hanging.values()), default=None)

    @property
    def unended(self) -> int:
        """Return how many children were killed and have not ended: they hang in the driver."""
        self._unended = [child for child in self._unended if child.returncode is None]
        return len(self._unended)

    async def start(self, deadline: float = 20.0) -> str:
        """Start the child, in place of an earlier one, and return the driver version.

        Raises DriverProblem, also while so many earlier ones hang in the driver that another would
        only take memory from the agent.
        """
        await self.stop()
        if self.unended >= _MAX_HANGING:
            raise DriverProblem(
                f"{self.unended} NVML processes hang in the driver and cannot be ended: reboot the "
                "node"
            )
        library = nvml_library(self._root)
        if library is None:
            raise DriverProblem(
                "no NVIDIA driver below the folder of the node that `driver.root` in the stack "
                "file names (libnvidia-ml.so.1 not found): / for a driver on the host, "
                "/run/nvidia/driver for one in a container"
            )
        try:
            self._child = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "divvy.agent.nvml.child", str(library), str(self._root)),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                limit=16 << 20,
            )
        except OSError as error:
            raise DriverProblem(f"the NVML process does not start: {error}") from error
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting = {0: ready}
        self._reader = asyncio.create_task(self._read(self._child))
        answer = await self._within(ready, 0, SYSTEM, "nvmlInit", deadline)
        return str(answer["version"])

    async def call(self, name: str, lane: str = SYSTEM, deadline: float = 20.0, **args: Any) -> Any:
        """Make one call and return its answer.

        Raises GpuHangs past the deadline, DriverAway without a child, DriverProblem with
        NVML's code where the driver refuses.
        """
        if self._child is None or self._child.stdin is None:
            raise DriverAway("the NVML process is not running")
        hanging = self._hanging.get(lane)
        if hanging is not None:
            raise GpuHangs(f"the GPU does not answer {hanging.name}")
        self._last_id += 1
        number = self._last_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        request = json.dumps({"id": number, "call": name, "lane": lane, "args": args})
        try:
            self._child.stdin.write(request.encode() + b"\n")
            await self._child.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            self._waiting.pop(number, None)
            raise DriverAway("the NVML process ended") from error
        return await self._within(future, number, lane, name, deadline)

    async def stop(self) -> None:
        """End the child and everything that waits for it."""
        child, self._child = self._child, None
        reader, self._reader = self._reader, None
        self._hanging = {}
        if reader is not None:
            reader.cancel()
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            try:
                async with asyncio.timeout(_KILL_SECONDS):
                    await child.wait()
            except TimeoutError:
                _log.error("process %s hangs in the driver and cannot be ended", child.pid)
                self._unended.append(child)
            # The transport warns when it is collected open.
            getattr(child, "_transport").close()  # noqa: B009
        self._fail_waiting("the NVML process was stopped")

    async def _within(
        self, future: asyncio.Future[Any], number: int, lane: str, name: str, deadline: float
    ) -> Any:
        try:
            async with asyncio.timeout(deadline):
                return await asyncio.shield(future)
        except TimeoutError:
            # It may lie there, where this process had no processor for so long. And a lane whose
            # answer has been read would hang on: there will be no other that ends it.
            for _ in range(_READING_PASSES):
                await asyncio.sleep(0)
            if future.done():
                return future.result()
            if lane != SYSTEM:
                self._hanging[lane] = _Hanging(number, name, time.monotonic() - deadline)
                # The same sentence each time: it stands in the node's status.
                raise GpuHangs(f"the GPU does not answer {name}") from None
            text = f"the driver did not answer {name} within {deadline:g} s"
            await self.stop()
            self._on_end(text)
            raise DriverProblem(text) from None

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        async for line in child.stdout:
            if not line.endswith(b"\n"):
                break  # it was killed while it wrote, as by the kernel for want of memory
            message = json.loads(line)
            if "xid" in message:
                self._on_xid(Xid(message["xid"], message["uuid"], message["gi"]))
            elif "events_ended" in message:
                if message["code"] in WHOLE_DRIVER:
                    child.kill()  # the driver was replaced: a new process sees the new one
                    break
                self._on_unwatched(message["events_ended"])
            else:
                self._settle(message)
        if self._child is child:
            self._child = None
            text = f"the NVML process ended with {_ending(await child.wait())}"
            self._fail_waiting(text)
            self._on_end(text)

    def _settle(self, message: dict[str, Any]) -> None:
        number = message["id"]
        for lane, hanging in list(self._hanging.items()):
            if hanging.number == number:
                del self._hanging[lane]
        future = self._waiting.pop(number, None)
        if future is None or future.done():
            return
        if "error" in message:
            problem = message["error"]
            future.set_exception(DriverProblem(problem["text"], problem["code"]))
            future.exception()  # the caller may no longer wait
        else:
            future.set_result(message["ok"])

    def _fail_waiting(self, text: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(DriverAway(text))
                future.exception()


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
