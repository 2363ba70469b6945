"""One GPU's control daemon as a process: start it, find it again, ask it, end it."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic

from divvy.agent.driver_root import driver_program, preloaded
from divvy.agent.mps import own_memory
from divvy.agent.mps.answers import NoAnswer, refusal
from divvy.agent.mps.processes import (
    FOREGROUND,
    PIPES_VARIABLE,
    Process,
    arguments,
    session,
    start_time,
)
from divvy.agent.mps.record import Limits
from divvy.agent.mps.shared_memory import (
    has_files,
    mount_memory,
    remove_left,
    unmount_memory,
    used_part,
)
from divvy.agent.mps.supervision import Ceiling, Share
from divvy.agent.mps.version_2 import Version2
from divvy.agent.mps.version_3 import DEFAULT, PROTOCOL, SERVER, Version3
from divvy.agent.regular_file import opened_regular_file

PROGRAM = "nvidia-cuda-mps-control"
_WITH_MEMORY = (sys.executable, "-I", "-S", own_memory.__file__)
# On a node whose tenants take all processors even a program that only asks is slow.
_ANSWER_SECONDS = 5.0
# For the work of its clients: a pod that ends has 5 seconds, of which other steps take some.
_QUIT_SECONDS = 2.0
# Longer than a server takes from its start until it lists the client that it was started for.
_SERVER_START_SECONDS = 5.0
_LOOK_SECONDS = 0.2
_ENDED_LOOK_SECONDS = 0.05
_MAX_LOG_BYTES = 4 << 20
_LAST_WORDS_BYTES = 1000
_GREETING = "To connect CUDA applications"
_NONE = Process(0, 0)


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
        self._given: dict[str, Share] = {}
        self._dialect: Version2 | Version3 = Version2(self._run)
        self._changing = asyncio.Lock()

    @property
    def pipes(self) -> Path:
        """Return the folder of its sockets."""
        return self._folder / "pipe"

    @property
    def has_namespaces(self) -> bool:
        """Return whether each share has limits and a socket of its own: in version 3."""
        return self._dialect.has_namespaces

    @property
    def lacks_server(self) -> bool:
        """Return whether the server of its namespaces has ended, and is not being replaced."""
        return self._dialect.lacks_server and not self._changing.locked()

    def pipes_of(self, share: str) -> Path:
        """Return the folder of the socket of one share."""
        return self.pipes / SERVER / share if self.has_namespaces else self.pipes

    def serves(self, pipes: Path) -> bool:
        """Return whether a container that was given this folder of sockets reaches it."""
        return pipes == self.pipes or (self.has_namespaces and pipes.parent == self.pipes / SERVER)

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

    @property
    def limits(self) -> Limits:
        """Return the limits that its clients were started with."""
        shares = sorted(self._given.items())
        return tuple((name, share.memory_mib, share.threads) for name, share in shares)

    def as_started(self, share: Share) -> Share:
        """Return a share with the limits that a container was started with, else as it is."""
        return self._given.get(share.name, share)

    def remember(self, limits: Limits) -> None:
        """Take over the limits that clients were started with by an agent before this one."""
        self._given.update({name: Share(name, *of_share) for name, *of_share in limits})

    def adopt(self, process: Process) -> None:
        """Take over the daemon of an agent before this one, if it still runs."""
        self._process = process
        if self.alive:
            self._speak(PROTOCOL[0] in arguments(process.pid))
            self._watch()

    def _speak(self, version_3: bool) -> None:
        self._dialect = Version3(self._run, self._given) if version_3 else Version2(self._run)

    def start(self, *, version_3: bool = False) -> Process:
        """Start it and return its process; raises OSError."""
        self.end()
        self._speak(version_3)
        program = self._program
        if not os.access(program, os.X_OK):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(program))
        mount_memory(self._memory)
        logs = self._folder / "log"
        for folder in (self.pipes, logs):
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o755)
        self.trim()
        (logs / "start.log").unlink(missing_ok=True)
        with (logs / "start.log").open("xb") as output, self._endless_input() as commands:
            command = [str(program), FOREGROUND, *self._dialect.OPTIONS]
            self._child = subprocess.Popen(  # noqa: S603 (the driver's own program)
                [*_WITH_MEMORY, str(self._memory), *command],
                stdin=commands,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**self._environment, "CUDA_VISIBLE_DEVICES": self._uuid},
                # By its session it is ended with its servers.
                start_new_session=True,
            )
        self._process = Process(self._child.pid, start_time(self._child.pid))
        self._watch()
        return self._process

    @contextlib.contextmanager
    def _endless_input(self) -> Iterator[int]:
        """Give an input from which nothing comes, and no end: its reader is a writer, too.

        In the foreground a daemon reads commands there, and ends with them (as NVIDIA's own
        supervisor of it says, gpu-fractioning); an agent that is killed must not end it.
        """
        path = self._folder / "input"
        path.unlink(missing_ok=True)
        os.mkfifo(path, 0o600)
        handle = os.open(path, os.O_RDWR)
        try:
            yield handle
        finally:
            os.close(handle)

    async def ask(self) -> None:
        """Ask for its servers; raises NoAnswer."""
        pids = await self._dialect.servers()
        self._servers = frozenset(Process(pid, start_time(pid)) for pid in pids)

    async def limit(self, ceiling: Ceiling) -> None:
        """Tell it what clients may use at most; raises NoAnswer, Refused."""
        async with self._changing:
            await self._dialect.limit(self._with_last_limits(ceiling))
            self._keep_last_limits(ceiling)

    async def terminate(self, client: int) -> None:
        """End what a client has on the GPU, before its process is ended; raises NoAnswer.

        A client killed with work in flight fails the others, and its server lets no new one in
        (drivers before 625).
        """
        await self._dialect.terminate(self.servers, client)

    async def prepare(self, share: Share, ceiling: Ceiling, *, alone: bool) -> None:
        """Make ready for a container that starts now; raises NoAnswer, Refused.

        It is ``alone`` if no other container is to be a client, or is one.
        A server in which a client was killed with work in flight lets new ones hang in their
        initialisation (drivers before 625), and says that it is active: one without clients ends.
        """
        began = monotonic()
        async with self._changing:
            await self.ask()
            if self._dialect.may_end_servers(alone=alone):
                await self._end_idle_servers(since=began)
            await self._dialect.prepare(share, self._with_last_limits(ceiling))
            self._keep_last_limits(ceiling)

    async def tidy(self, ceiling: Ceiling) -> None:
        """Remove what containers that are gone have left; raises NoAnswer."""
        async with self._changing:
            await self._dialect.tidy(ceiling)

    def _with_last_limits(self, ceiling: Ceiling) -> Ceiling:
        """Return a ceiling with the daemon's last limits where its profile is gone."""
        last = self._given.get(DEFAULT)
        if ceiling.memory_mib is not None or last is None:
            return ceiling
        return replace(ceiling, memory_mib=last.memory_mib, threads=last.threads)

    def _keep_last_limits(self, ceiling: Ceiling) -> None:
        if ceiling.memory_mib is not None and ceiling.threads is not None:
            self._given[DEFAULT] = Share(DEFAULT, ceiling.memory_mib, ceiling.threads)

    async def _end_idle_servers(self, since: float) -> None:
        """A young one may be starting for a client that it does not list yet: waits for that.

        A server that was started ``since`` then stays: it is for a container that starts at the
        same time, whose program is about to connect.
        """
        ended = set()
        for server in self._servers:
            if server.age < monotonic() - since:
                continue
            while await self._is_idle(server):
                if server.age >= _SERVER_START_SECONDS:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(server.pid, signal.SIGKILL)
                    ended.add(server)
                    break
                await asyncio.sleep(_LOOK_SECONDS)
        # No other can be started before the daemon has seen the end of this one.
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                while any(server in ended or not server.runs for server in self._servers):
                    await asyncio.sleep(_ENDED_LOOK_SECONDS)  # each question is a process
                    await self.ask()
        except TimeoutError:
            raise NoAnswer("it still lists a server that has ended") from None

    async def quit(self) -> None:
        """End what its clients have on the GPU, then itself and its servers; raises NoAnswer."""
        try:
            async with asyncio.timeout(_QUIT_SECONDS):
                await self.ask()
                await self._dialect.quit(self.servers)
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

    def remove_left(self) -> bool:
        """Remove what containers have left in its /dev/shm; return whether there was anything.

        Only where no container is a client, or is about to be one. Raises NoAnswer.
        """
        if not has_files(self._memory):
            return False
        own = session(self._process.pid) if self.alive else []
        try:
            return remove_left(self._memory, {*own, *self.servers})
        except OSError as error:
            left = f"what containers left in {self._memory} is not removed"
            raise NoAnswer(f"{left}: {error}") from error

    @property
    def memory_used(self) -> float:
        """Return how much of its /dev/shm is taken, from 0 to 1."""
        return used_part(self._memory)

    def last_words(self) -> str:
        """Return the last line that it wrote, of its own output or its log."""
        lines = [line for name in ("control.log", "start.log") for line in self._tail(name)]
        words = [line for line in lines if not line.startswith(_GREETING)]
        return words[-1] if words else "it says nothing"

    def trim(self) -> None:
        """Keep its logs from growing without end."""
        for path in (self._folder / "log").rglob("*.log"):
            with contextlib.suppress(OSError):
                if path.stat().st_size > _MAX_LOG_BYTES:
                    os.truncate(path, 0)

    def _tail(self, name: str) -> Iterable[str]:
        try:
            with opened_regular_file(self._folder / "log" / name) as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - _LAST_WORDS_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ()
        return [line.strip() for line in text.splitlines() if line.strip()]

    @property
    def _program(self) -> Path:
        return self._root / (driver_program(self._root, PROGRAM) or f"usr/bin/{PROGRAM}")

    @property
    def _environment(self) -> dict[str, str]:
        return {
            "PATH": f"{self._program.parent}:/usr/bin:/bin",
            **preloaded(self._root),
            PIPES_VARIABLE: str(self.pipes),
            "CUDA_MPS_LOG_DIRECTORY": str(self._folder / "log"),
        }

    async def _is_idle(self, server: Process) -> bool:
        return server.runs and not await self._dialect.has_clients(server.pid)

    async def _run(self, arguments: Sequence[str], text: str) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                str(self._program),
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                env=self._environment,
            )
        except OSError as error:
            raise NoAnswer(str(error)) from error
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                output, _ = await process.communicate(text.encode())
        except TimeoutError:
            raise NoAnswer(f"nothing within {_ANSWER_SECONDS:g} s") from None
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        answer = output.decode(errors="replace")
        if process.returncode:
            command = " ".join(arguments[len(PROTOCOL) :][:2]) or text.split()[0]
            raise refusal(command, answer or f"exit code {process.returncode}")
        return answer

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
