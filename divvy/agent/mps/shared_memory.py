"""The memory that a GPU's MPS daemon and its clients share: a tmpfs that is /dev/shm to them all.

An MPS server and a client open each other's files in /dev/shm, and a container's is its own. So
one file system per GPU takes its place, of a fixed size: whoever fills it harms the clients of that
GPU, whose faults end each other anyway, and neither the node nor another GPU.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

# What a container may use of it besides, such as PyTorch's loaders of data: its own has 64 MiB.
SIZE = 1 << 30
# The kernel's memory for them counts in no size.
_INODES = 16384
_MS_NOSUID, _MS_NODEV, _MS_NOEXEC = 2, 4, 8
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


def mount_memory(folder: Path) -> None:
    """Mount a GPU's file system where none is mounted; raises OSError.

    What is mounted stays: containers have it, and another would not be theirs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.is_mount():
        return
    flags = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
    options = f"size={SIZE},nr_inodes={_INODES},mode=1777".encode()
    _check(_libc.mount(b"divvy-mps", os.fsencode(folder), b"tmpfs", flags, options), folder)


def unmount_memory(folder: Path) -> None:
    """Take a GPU's file system away with all that is in it; raises OSError."""
    if folder.is_mount():
        _check(_libc.umount2(os.fsencode(folder), _MNT_DETACH), folder)
    if folder.exists():
        folder.rmdir()


def _check(result: int, folder: Path) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))
