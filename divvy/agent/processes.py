"""Processes of the host: what they are, and how to end exactly the one that was looked at."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from divvy.agent.containers import Member, Process, member

_PROC = Path("/proc")
_START_TIME = 19  # field 22 of proc(5)'s stat, counted from the third


def find_process(pid: int) -> tuple[Process, Member] | None:
    """Return a process and where it belongs; None for one outside pods, or ended meanwhile.

    Raises OSError where that cannot be told.
    """
    try:
        started = start_time(pid)
        where = member((_PROC / str(pid) / "cgroup").read_text(errors="replace"))
    except (FileNotFoundError, ProcessLookupError, ValueError):
        return None
    return None if where is None else (Process(pid, started), where)


def send(process: Process, number: signal.Signals) -> bool:
    """Send a signal to this very process; False if it has ended.

    The number may have been given to another process since it was looked at, or may be at
    any instant: what is opened first and compared then cannot become another.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        if start_time(process.pid) != process.started:
            return False
        signal.pidfd_send_signal(handle, number)
    except (OSError, ValueError):
        return False
    finally:
        os.close(handle)
    return True


def start_time(pid: int) -> int:
    """Return a process's start time in clock ticks since the system's start.

    A process may call itself what it likes, also what is no text.
    """
    stat = (_PROC / str(pid) / "stat").read_bytes()
    return int(stat.rpartition(b")")[2].split()[_START_TIME])
