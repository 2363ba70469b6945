"""One GPU's control daemon as a process: start it, find it again, ask it, end it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from divvy.agent.driver_libraries import library_folder
from divvy.agent.mps import own_memory
from divvy.agent.mps.processes import FOREGROUND, PIPES_VARIABLE, Process, start_time
from divvy.agent.mps.shared_memory import mount_memory, unmount_memory
from divvy.agent.mps.supervision import Ceiling

PROGRAM = "usr/bin/nvidia-cuda-mps-control"
_WITH_MEMORY = (sys.executable, "-I", "-S", own_memory.__file__)
# On a node whose tenants take all processors even a program that only asks is slow.
_ANSWER_SECONDS = 5.0
# For the work of its clients: a pod that ends has 5 seconds, of which other steps take some.
_QUIT_SECONDS = 2.0
# Longer than a server takes from its start until it lists the client that it was started for.
_SERVER_START_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_MAX_LOG_BYTES = 4 << 20
_LAST_WORDS_BYTES = 1000
_NONE = Process(0, 0)
# Of a refusal the exit code need not tell.
_FAILURE = re.compile(r"\b(fail|invalid|error|unknown|unrecogni[sz]ed|denied|cannot|not )", re.I)


class NoAnswer(Exception):
    """The daemon did not answer, or not as it should: what came instead."""


class Refused(NoAnswer):
    """The daemon answered a command with an error: which."""


class MpsDaemon:
    """The daemon of one GPU; ``on_end`` is called when its process ends.

    ``folder`` has the same path on the host: containers mount ``pipes``, which stays the same
    folder over all daemons. ``memory`` too, which is the daemon's /dev/shm and theirs.
    """

    def __init__(
        self, root: Path, folder: Path, memory: Path, uuid: str, on_end: Callable[[], None]
    ) -> None:
        self._root = root
        self._folder = folder
        self._memory = memory
        self._uuid = uuid
        self._on_end = on_end
        self._child: subprocess.Popen[bytes] | None = None
        self._handle: int | None = None
        self._process = _NONE
        self._servers: frozenset[Process] = frozenset()

    @property
    def pipes(self) -> Path:
        """Return the folder of its sockets."""
        return self._folder / "pipe"

    @property
    def servers(self) -> frozenset[int]:
        """Return the PIDs of its servers, as it told them last."""
        return frozenset(server.pid for server in self._servers)

    @property
    def alive(self) -> bool:
        """Return whether its process runs."""
        if self._child is not None:
            self._child.poll()
        return self._process.runs

    def adopt(self, process: Process) -> None:
        """Take over the daemon of an agent before this one, if it still runs."""
        self._process = process
        if self.alive:
            self._watch()

    def start(self) -> Process:
        """Start it and return its process; raises OSError."""
        self.end()
        program = self._root / PROGRAM
        if not os.access(program, os.X_OK):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(program))
        mount_memory(self._memory)
        logs = self._folder / "log"
        for folder in (self.pipes, logs):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        self.trim()
        environment = self._environment
        libraries = environment.pop("LD_LIBRARY_PATH")
        with (logs / "start.log").open("wb") as output:
            command = [str(program), FOREGROUND, "-multiuser-server"]
            self._child = subprocess.Popen(  # noqa: S603 (the driver's own program)
                [*_WITH_MEMORY, str(self._memory), libraries, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**environment, "CUDA_VISIBLE_DEVICES": self._uuid},
                # It outlives an agent that is killed, and its servers end with it.
                start_new_session=True,
            )
        self._process = Process(self._child.pid, start_time(self._child.pid))
        self._watch()
        return self._process

    async def ask(self) -> None:
        """Ask for its servers; raises NoAnswer."""
        answer = await self._say("get_server_list")
        if not all(word.isdecimal() for word in answer.split()):
            raise NoAnswer(answer.strip() or "nothing")
        pids = map(int, answer.split())
        self._servers = frozenset(Process(pid, start_time(pid)) for pid in pids)

    async def limit(self, ceiling: Ceiling) -> None:
        """Tell it what clients may use at most, and servers that run: the default is the next's.

        Raises NoAnswer, Refused where it does not take a limit.
        """
        memory, threads = f"{ceiling.memory_mib}M", ceiling.threads
        await self._set(f"set_default_device_pinned_mem_limit 0 {memory}")
        await self._set(f"set_default_active_thread_percentage {threads}")
        await self.ask()  # after that: a server that starts meanwhile has the new default
        for server in self.servers:
            try:
                await self._set(f"set_device_pinned_mem_limit {server} 0 {memory}")
                await self._set(f"set_active_thread_percentage {server} {threads}")
            except Refused:
                await self.ask()
                if server in self.servers:  # else it has ended meanwhile
                    raise

    async def terminate(self, client: int) -> None:
        """End what a client has on the GPU, before its process is ended; raises NoAnswer.

        A client killed with work in flight fails the others, and its server lets no new one in
        (drivers before 625).
        """
        for server in sorted(self.servers):
            with contextlib.suppress(Refused):  # it is another server's, or has ended meanwhile
                await self._say(f"terminate_client {server} {client}")

    async def end_idle_servers(self) -> None:
        """End servers without clients, before the next one comes; raises NoAnswer.

        In one whose client was killed with work in flight, new clients hang in their
        initialisation (drivers before 625), and it says that it is active. A young one may be
        starting for a client that it does not list yet: waits for that.
        """
        await self.ask()
        for server in self._servers:
            while await self._is_idle(server):
                if server.age >= _SERVER_START_SECONDS:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(server.pid, signal.SIGKILL)
                    break
                await asyncio.sleep(_LOOK_SECONDS)

    async def quit(self) -> None:
        """End what its clients have on the GPU, then itself and its servers; raises NoAnswer."""
        try:
            async with asyncio.timeout(_QUIT_SECONDS):
                await self._quit()
        except TimeoutError:
            raise NoAnswer(f"it has not ended within {_QUIT_SECONDS:g} s") from None

    def end(self) -> None:
        """End its process and its servers' now, and whatever they have left running."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        for server in self._servers:
            if server.runs:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(server.pid, signal.SIGKILL)
        self._servers = frozenset()
        self._unwatch()
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(1)

    def gone(self) -> None:
        """Take note that its process has ended: its servers are ended too."""
        self.end()
        self._process = _NONE

    def forget(self) -> None:
        """Remove its files and its memory; raises OSError."""
        self._unwatch()
        self._process = _NONE
        shutil.rmtree(self._folder, ignore_errors=True)
        unmount_memory(self._memory)

    def last_words(self) -> str:
        """Return the last line that it wrote, of its own output or its log."""
        lines = [line for name in ("control.log", "start.log") for line in self._tail(name)]
        return lines[-1] if lines else "it says nothing"

    def trim(self) -> None:
        """Keep its logs from growing without end."""
        for path in (self._folder / "log").glob("*.log"):
            with contextlib.suppress(OSError):
                if path.stat().st_size > _MAX_LOG_BYTES:
                    os.truncate(path, 0)

    def _tail(self, name: str) -> Iterable[str]:
        try:
            with (self._folder / "log" / name).open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ()
        return [line.strip() for line in text.splitlines() if line.strip()]

    @property
    def _environment(self) -> dict[str, str]:
        libraries = library_folder(self._root)
        return {
            "PATH": f"{self._root / 'usr/bin'}:/usr/bin:/bin",
            "LD_LIBRARY_PATH": "" if libraries is None else str(libraries),
            PIPES_VARIABLE: str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self._folder / "log"),
        }

    async def _quit(self) -> None:
        await self.ask()
        commands = []
        for server in sorted(self.servers):
            clients = await self._say(f"get_client_list {server}")
            pids = filter(str.isdecimal, clients.split())
            commands += [f"terminate_client {server} {pid}" for pid in pids]
        await self._say("\n".join([*commands, "quit -t 0"]))

    async def _is_idle(self, server: Process) -> bool:
        return server.runs and not (await self._say(f"get_client_list {server.pid}")).split()

    async def _set(self, command: str) -> None:
        answer = await self._say(command)
        if _FAILURE.search(answer):
            raise Refused(_words(command, answer))

    async def _say(self, command: str) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                str(self._root / PROGRAM),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
            )
        except OSError as error:
            raise NoAnswer(str(error)) from error
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                output, _ = await process.communicate(f"{command}\n".encode())
        except TimeoutError:
            raise NoAnswer(f"nothing within {_ANSWER_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        text = output.decode(errors="replace")
        if process.returncode:
            raise Refused(_words(command, text or f"exit code {process.returncode}"))
        return text

    def _watch(self) -> None:
        self._unwatch()
        with contextlib.suppress(OSError):  # it has ended already: a look at it shows that
            self._handle = os.pidfd_open(self._process.pid)
            asyncio.get_running_loop().add_reader(self._handle, self._ended)

    def _ended(self) -> None:
        self._unwatch()
        self._on_end()

    def _unwatch(self) -> None:
        if self._handle is not None:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = None


def _words(command: str, answer: str) -> str:
    return f"{command.split()[0]}: {' '.join(answer.split())}"
