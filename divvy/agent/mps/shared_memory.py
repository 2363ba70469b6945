"""The memory that a GPU's MPS daemon and its clients share: a tmpfs that is /dev/shm to them all.

An MPS server and a client open each other's files in /dev/shm, and a container's is its own. So
one file system per GPU takes its place, of a fixed size: whoever fills it harms the clients of that
GPU, whose faults end each other anyway, and neither the node nor another GPU.
"""

from __future__ import annotations

from pathlib import Path

from divvy.agent.inject.tmpfs import Tmpfs

# What a container may use of it besides, such as PyTorch's loaders of data: its own has 64 MiB.
SIZE = 1 << 30
# The kernel's memory for them counts in no size.
_INODES = 16384


def mount_memory(folder: Path) -> None:
    """Mount a GPU's file system where none is mounted; raises OSError."""
    _tmpfs(folder).mount(SIZE, _INODES)


def unmount_memory(folder: Path) -> None:
    """Take a GPU's file system away with all that is in it; raises OSError."""
    _tmpfs(folder).unmount()


def _tmpfs(folder: Path) -> Tmpfs:
    return Tmpfs(folder, "divvy-mps", 0o1777, noexec=True)
