"""Read a file of the host in whose place anything may lie: no pipe, device or endless file."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

_MAX_BYTES = 16 << 20


def read_regular_file(path: Path) -> bytes:
    """Return a file's content; raises OSError if it is not a regular file, or is too large."""
    # Opening a pipe would block until somebody writes to it.
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(opened, "rb") as file:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        if status.st_size > _MAX_BYTES:
            raise OSError(errno.EFBIG, f"longer than {_MAX_BYTES >> 20} MiB", str(path))
        return file.read(_MAX_BYTES)
