"""The lab's processes, found by a mark in their environment rather than by remembered numbers.

A process keeps the mark whatever crashed around it, so nothing can be forgotten.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab.cluster.errors import ProcessesRemain
from lab.cluster.paths import LOGS, NAME, STATE

MARK = "DIVVY_LAB_COMPONENT"
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class LabProcess:
    """A running process of the lab."""

    component: str
    pid: int


def environment(component: str, path: Sequence[Path] = ()) -> dict[str, str]:
    """Return the whole environment of a component of the lab, with its mark."""
    return {
        "PATH": ":".join([*map(str, path), _PATH]),
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "DIVVY_LAB": NAME,
        MARK: f"{STATE}:{component}",
    }


def start(component: str, command: Sequence[str | Path]) -> None:
    """Start a component in the background, its output in the log that bears its name."""
    detach(command, environment(component), LOGS / f"{component}.log")


def detach(
    command: Sequence[str | Path],
    variables: Mapping[str, str],
    log: Path,
    descriptors: Sequence[int] = (),
) -> None:
    """Run a command detached, with its output in a log and these descriptors open."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        subprocess.run(
            ["setsid", "--fork", *map(str, command)],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            pass_fds=descriptors,
            cwd="/",
            check=True,
        )


def running() -> Iterator[LabProcess]:
    """Yield every live process that bears the lab's mark and is not inside a node."""
    mark = f"{MARK}={STATE}:".encode()
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        for variable in variables(entry).split(b"\0"):
            if variable.startswith(mark):
                component = variable.removeprefix(mark).decode()
                yield LabProcess(component, int(entry.name))


def variables(entry: Path) -> bytes:
    """Return a process's environment, nothing if it has none, is dead or of the kernel.

    In an execve a process has its new program but not yet its environment, for a moment, or
    as long as the disk takes to bring the program's first pages. So an environment that is
    empty is looked at again, until the same empty place has been seen twice.
    """
    before = None
    try:
        while True:
            environment = (entry / "environ").read_bytes()
            if environment:
                return environment
            start, end = place = _environment(entry)
            if start == end != 0 and place == before:
                return b""
            before = place
            time.sleep(0.001)
    except OSError:
        return b""


def _environment(entry: Path) -> tuple[int, int]:
    """Return where a process's environment begins and ends: proc_pid_stat(5)'s last but one.

    The end is 0 in an execve, and for zombies and the kernel's threads. They have no program,
    which is an OSError.
    """
    (entry / "exe").readlink()
    after_name = (entry / "stat").read_text().rpartition(")")[2].split()
    return int(after_name[47]), int(after_name[48])


def find(component: str) -> int | None:
    """Return the process of a component, None if it does not run."""
    return min(
        (process.pid for process in running() if process.component == component), default=None
    )


def kill_all(component: str | None = None) -> int:
    """Kill every process of the lab or of a component; return, once all are gone, how many."""
    killed: set[int] = set()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        left = [
            process.pid
            for process in running()
            if process.pid != os.getpid() and component in (None, process.component)
        ]
        if not left:
            return len(killed)
        for pid in left:
            killed.add(pid)
            send(pid, signal.SIGKILL)
        time.sleep(0.02)
    raise ProcessesRemain(f"processes {left} of the lab do not end, even after SIGKILL")


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
