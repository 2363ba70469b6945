"""A file that a tenant can write: opened without waiting for it, and kept to its size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_BLOCK = 4096
_BLOCK_UNIT = 512  # of st_blocks, by stat(2)


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """Open a tenant's file; raises OSError."""
    # Without waiting: a tenant that is root can take a lease on its file (fcntl(2)).
    file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield file
    finally:
        os.close(file)


def cut(file: int, size: int) -> None:
    """Take back what a tenant has beyond a file's size; raises OSError.

    Also blocks behind the end, which `fallocate` takes without a change of the size, and
    attributes.
    """
    status = os.fstat(file)
    blocks = -(-size // _BLOCK) * _BLOCK // _BLOCK_UNIT
    if status.st_size > size or status.st_blocks > blocks:
        os.ftruncate(file, size)
    for name in os.listxattr(file):
        if name.startswith("user."):
            os.removexattr(file, name)
