"""Processes of a run on this host: none of them outlives the check that started it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PR_SET_PDEATHSIG = 1


def adopt_orphans() -> None:
    """Become the parent of every descendant whose own parent has ended."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_with_parent(number: int = signal.SIGTERM) -> None:
    """Have this process sent a signal when its parent ends, however that ends."""
    _prctl(_PR_SET_PDEATHSIG, number)


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Return the processes below one, those of a kernel's other namespaces included."""
    children: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append(int(stat.parent.name))
    pids = list(children.get(pid, ()))
    for child in pids:
        pids += children.get(child, ())
    return pids


def kill_descendants(seconds: float = 5.0) -> list[int]:
    """Kill everything that a check has left behind; return what could not be ended."""
    deadline = time.monotonic() + seconds
    while True:
        left = descendants(os.getpid())
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        _reap()
        if not left or time.monotonic() > deadline:
            return left
        time.sleep(0.02)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass
