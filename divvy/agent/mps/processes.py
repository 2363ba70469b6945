"""The control daemons that agents have started on this node, as the kernel shows them.

An agent that is killed leaves its daemons running, and may not have written down yet, or may have
lost, which process is which GPU's. The environment that a daemon was started with says so.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PIPES_VARIABLE = "CUDA_MPS_PIPE_DIRECTORY"
FOREGROUND = "-f"
_PROC = Path("/proc")


@dataclass(frozen=True)
class Process:
    """A process for all time: its PID, and when it started in the kernel's ticks since the boot."""

    pid: int
    started: int

    @property
    def runs(self) -> bool:
        """Return whether it still runs; a zombie does not."""
        return start_time(self.pid) == self.started != 0

    @property
    def age(self) -> float:
        """Return for how many seconds it has run, or would have."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) - self.started / os.sysconf("SC_CLK_TCK")


def start_time(pid: int) -> int:
    """Return when a process started, in the kernel's ticks since the boot; 0 if it does not run.

    Raises OSError where that cannot be told.
    """
    try:
        # Bytes: its name, which it chooses, may be no text.
        fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 0 if pid == 0 or fields[0] in b"ZX" else int(fields[19])


def arguments(pid: int) -> list[str]:
    """Return what a process was started with, [] if it does not run."""
    try:
        return os.fsdecode((_PROC / str(pid) / "cmdline").read_bytes()).split("\0")
    except OSError:
        return []


def daemons(folder: Path) -> dict[str, Process]:
    """Return GPU UUID → its control daemon, of those whose sockets are below ``folder``.

    A tenant may start whatever it likes in an environment that it chooses, but in a container's
    PID namespace, and daemons are in that of the agent.
    """
    matches = {}
    for pid in _session_leaders():
        try:
            environment = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        pipes = next((value for value in map(_pipes, environment) if value is not None), None)
        # An administrator's prompt has the same environment, and not this argument.
        if pipes is None or FOREGROUND not in arguments(pid):
            continue
        if pipes.parent.parent == folder and (started := start_time(pid)):
            matches[pipes.parent.name] = Process(pid, started)
    return matches


def session(leader: int) -> list[int]:
    """Return the processes of a session: a daemon, its servers and whatever else they started."""
    pids = []
    for entry in _PROC.iterdir():
        with contextlib.suppress(OSError):  # it has ended
            if entry.name.isdecimal() and os.getsid(int(entry.name)) == leader:
                pids.append(int(entry.name))
    return pids


def _pipes(variable: bytes) -> Path | None:
    name, _, value = variable.partition(b"=")
    return Path(os.fsdecode(value)) if name == os.fsencode(PIPES_VARIABLE) else None


def _session_leaders() -> Iterator[int]:
    """Yield the processes that a daemon can be: its servers are in its session."""
    own = (_PROC / "self/ns/pid").readlink()
    for entry in _PROC.iterdir():
        try:
            if not entry.name.isdecimal() or os.getsid(int(entry.name)) != int(entry.name):
                continue
            if (entry / "ns/pid").readlink() == own:
                yield int(entry.name)
        except OSError:
            continue  # it has ended
