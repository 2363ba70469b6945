"""Control groups of version 2 for tests, and programs that run in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.driver_clients.driver_root import eventually


def hierarchy() -> Path:
    """Return where version 2 is mounted; skips the test where it is not."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    top = next((Path(mount[1]) for mount in mounts if mount[2] == "cgroup2"), None)
    if top is None or not os.access(top, os.W_OK):
        pytest.skip("version 2 of the control groups is not mounted, or not to be changed")
    return top


@contextmanager
def control_group() -> Iterator[Path]:
    """Give a group with one below it, both empty; what runs in them must have ended at the end."""
    group = hierarchy() / f"divvy-test-{os.getpid()}"
    below = group / "below"
    group.mkdir()
    below.mkdir()
    try:
        yield group
    finally:
        assert eventually(lambda: removed(below) and removed(group))


def start_within(group: Path, *command: str, wait: bool = False) -> subprocess.Popen[str]:
    """Start a program in a group; with ``wait`` it is there, and begins with a line of input."""
    script = 'echo 0 > "$0/cgroup.procs" && exec "$@"'
    if wait:
        script = 'echo 0 > "$0/cgroup.procs" && echo && read -r line && exec "$@"'
    process = subprocess.Popen(
        ["sh", "-c", script, str(group), *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    if wait:
        assert process.stdout is not None
        process.stdout.readline()
    return process


def removed(folder: Path) -> bool:
    """Remove a group; return whether it is gone."""
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
