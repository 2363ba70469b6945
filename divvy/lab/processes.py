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

from divvy.lab.paths import LOGS, NAME, STATE

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
    """Run a command as nobody's child, with its output in a log and these descriptors open."""
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
    """Return a process's environment, nothing if it is dead or of the kernel."""
    try:
        while True:
            found = (entry / "environ").read_bytes()
            if found or not _in_execve(entry):
                return found
            time.sleep(0.001)
    except OSError:
        return b""


def _in_execve(entry: Path) -> bool:
    """Say whether a process has its new program but not yet its environment.

    It is a moment, or as long as the disk takes to bring the program's first pages. Then
    proc_pid_stat(5)'s env_end is 0, as it is for zombies and the kernel's threads, which
    have no program.
    """
    after_name = (entry / "stat").read_text().rpartition(")")[2].split()
    return int(after_name[48]) == 0 and bool((entry / "exe").readlink())


def find(component: str) -> int | None:
    """Return the process of a component, None if it does not run."""
    return min((each.pid for each in running() if each.component == component), default=None)


def kill_all(component: str | None = None) -> int:
    """Kill every process of the lab or of a component; return, once all are gone, how many."""
    killed: set[int] = set()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        left = [
            each.pid
            for each in running()
            if each.pid != os.getpid() and component in (None, each.component)
        ]
        if not left:
            return len(killed)
        for pid in left:
            killed.add(pid)
            send(pid, signal.SIGKILL)
        time.sleep(0.02)
    raise TimeoutError(f"processes {left} of the lab do not end, even after SIGKILL")


def send(pid: int, number: signal.Signals) -> None:
    """Send a signal to a process that may be gone already."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
