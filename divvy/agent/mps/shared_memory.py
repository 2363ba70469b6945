"""The memory that a GPU's MPS daemon and its clients share: a tmpfs that is /dev/shm to them all.

An MPS server and a client open each other's files in /dev/shm, and a container's is its own. So
one file system per GPU takes its place, of a fixed size: whoever fills it harms the clients of that
GPU, whose faults end each other anyway, and neither the node nor another GPU.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

from divvy.agent.inject.tmpfs import Tmpfs

# What a container may use of it besides, such as PyTorch's loaders of data: its own has 64 MiB.
SIZE = 1 << 30
# The kernel's memory for them counts in no size.
_INODES = 16384
# What the kernel answers of a process that has ended; any other error says nothing of it.
_ENDED = (FileNotFoundError, ProcessLookupError)


def mount_memory(folder: Path) -> None:
    """Mount a GPU's file system where none is mounted; raises OSError."""
    _tmpfs(folder).mount(SIZE, _INODES)


def unmount_memory(folder: Path) -> None:
    """Take a GPU's file system away with all that is in it; raises OSError."""
    _tmpfs(folder).unmount()


def used_part(folder: Path) -> float:
    """Return how much of a GPU's file system is taken, of its bytes or its inodes, from 0 to 1."""
    try:
        if not folder.is_mount():
            return 0.0
        status = os.statvfs(folder)
    except OSError:
        return 0.0
    free = min(status.f_bfree / (status.f_blocks or 1), status.f_ffree / (status.f_files or 1))
    return max(0.0, 1.0 - free)


def has_files(folder: Path) -> bool:
    """Return whether there is anything in a GPU's file system."""
    try:
        return folder.is_mount() and any(folder.iterdir())
    except OSError:
        return False


def remove_left(folder: Path, pids: Collection[int]) -> bool:
    """Remove what none of these processes has open or mapped; return whether there was anything.

    What pods have left there is nobody's: the next ones could read it, and have no room. Raises
    OSError, and removes nothing, where it cannot be told what a process has open.
    """
    used = {inode for pid in pids for inode in _open_files(pid, folder.stat().st_dev)}
    removed = False
    for path in list(folder.iterdir()):
        with suppress(OSError):
            status = path.lstat()
            if status.st_ino in used:
                continue
            if stat.S_ISDIR(status.st_mode):
                shutil.rmtree(path)
            else:
                path.unlink()
            removed = True
    return removed


def _open_files(pid: int, device: int) -> set[int]:
    """Return the inodes of a file system that a process has open or mapped, none if it has ended.

    Raises OSError where that cannot be told.
    """
    inodes = set()
    process = Path(f"/proc/{pid}")
    with suppress(*_ENDED):
        for line in (process / "maps").read_bytes().splitlines():
            _, _, _, numbers, inode = line.split()[:5]
            major, _, minor = numbers.decode().partition(":")
            if os.makedev(int(major, 16), int(minor, 16)) == device:
                inodes.add(int(inode))
    with suppress(*_ENDED):
        for handle in (process / "fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                status = handle.stat()
                if status.st_dev == device:
                    inodes.add(status.st_ino)
    return inodes


def _tmpfs(folder: Path) -> Tmpfs:
    return Tmpfs(folder, "divvy-mps", 0o1777, noexec=True)
