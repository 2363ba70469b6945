"""The agent's end of the discovery process: start, call with a deadline, replace."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from divvy.agent.nvml.library import nvml_library


class DriverProblem(Exception):
    """The driver could not answer: absent, failed, of another version, or hanging.

    ``code`` is the NVML return value where there is one.
    """

    def __init__(self, text: str, code: int | None = None) -> None:
        super().__init__(text)
        self.code = code


class DriverAway(DriverProblem):
    """Nobody is there to ask: says nothing about any GPU."""


@dataclass(frozen=True)
class Xid:
    """One XID event. ``uuid`` None: the driver did not say which GPU; ``gi`` None: all of it."""

    number: int
    uuid: str | None
    gi: int | None


class NvmlProcess:
    """Runs NVML calls in a child process; a call past its deadline ends the child.

    ``on_xid`` is called in the event loop for each XID event; ``on_end`` when the
    child ends without being told to.
    """

    def __init__(
        self, root: Path, on_xid: Callable[[Xid], None], on_end: Callable[[str], None]
    ) -> None:
        self._root = root
        self._on_xid = on_xid
        self._on_end = on_end
        self._child: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._last_id = 0

    @property
    def running(self) -> bool:
        """Tell whether a child is up."""
        return self._child is not None

    async def start(self, deadline: float = 20.0) -> str:
        """Start the child and return the driver version; raises DriverProblem."""
        library = nvml_library(self._root)
        if library is None:
            raise DriverProblem(
                f"no NVIDIA driver below {self._root} (libnvidia-ml.so.1 not found)"
            )
        self._child = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "divvy.agent.nvml.child", str(library), str(self._root)),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=16 << 20,
        )
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting = {0: ready}
        self._reader = asyncio.create_task(self._read(self._child))
        answer = await self._within(ready, "nvmlInit", deadline)
        return str(answer["version"])

    async def call(self, name: str, deadline: float = 20.0, **args: Any) -> Any:
        """Make one call and return its answer; raises DriverProblem."""
        if self._child is None or self._child.stdin is None:
            raise DriverAway("the discovery process is not running")
        self._last_id += 1
        number = self._last_id
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        request = json.dumps({"id": number, "call": name, "args": args})
        try:
            self._child.stdin.write(request.encode() + b"\n")
            await self._child.stdin.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            self._waiting.pop(number, None)
            raise DriverAway("the discovery process ended") from error
        return await self._within(future, name, deadline)

    async def stop(self) -> None:
        """End the child and everything that waits for it."""
        child, self._child = self._child, None
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
        if child is not None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
            # The transport warns when it is collected open.
            getattr(child, "_transport").close()  # noqa: B009
        self._fail_waiting("the discovery process was stopped")

    async def _within(self, future: asyncio.Future[Any], name: str, deadline: float) -> Any:
        try:
            async with asyncio.timeout(deadline):
                return await future
        except TimeoutError:
            await self.stop()
            text = f"the driver did not answer {name} within {deadline:g} s"
            self._on_end(text)
            raise DriverProblem(text) from None

    async def _read(self, child: asyncio.subprocess.Process) -> None:
        assert child.stdout is not None
        async for line in child.stdout:
            message = json.loads(line)
            if "xid" in message:
                self._on_xid(Xid(message["xid"], message["uuid"], message["gi"]))
            elif "events_ended" in message:
                child.kill()  # a driver that was replaced or has failed: a new process sees more
                break
            else:
                self._settle(message)
        if self._child is child:
            self._child = None
            text = f"the discovery process ended with {_ending(await child.wait())}"
            self._fail_waiting(text)
            self._on_end(text)

    def _settle(self, message: dict[str, Any]) -> None:
        future = self._waiting.pop(message["id"], None)
        if future is None or future.done():
            return
        if "error" in message:
            problem = message["error"]
            future.set_exception(DriverProblem(problem["text"], problem["code"]))
        else:
            future.set_result(message["ok"])

    def _fail_waiting(self, text: str) -> None:
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(DriverAway(text))


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
