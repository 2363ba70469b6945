"""Read a file of the host in whose place anything may lie: no pipe, device or endless file."""

from __future__ import annotations

import errno
import os
import stat
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO

_MAX_BYTES, _PIECE_BYTES = 16 << 20, 64 << 10


def read_regular_file(path: Path) -> bytes:
    """Return a file's content; raises OSError if it is not a regular file, or is too large."""
    with opened_regular_file(path) as file:
        # In pieces: in /proc/sys the kernel has no room for who asks for much at once (ENOMEM).
        pieces = iter(partial(file.read, _PIECE_BYTES), b"")
        return b"".join(islice(pieces, _MAX_BYTES // _PIECE_BYTES))


def opened_regular_file(path: Path | str, folder: int | None = None) -> BinaryIO:
    """Open such a file, by its name in an open folder if one is given; raises OSError."""
    # Opening a pipe would block until somebody writes to it.
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC
    opened = os.open(path, flags, dir_fd=folder)
    try:
        require_regular(opened, path)
    except OSError:
        os.close(opened)
        raise
    return os.fdopen(opened, "rb")


def require_regular(opened: int, path: Path | str) -> None:
    """Raise OSError if what is open is not a regular file, or is too large."""
    status = os.fstat(opened)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    if status.st_size > _MAX_BYTES:
        raise OSError(errno.EFBIG, f"longer than {_MAX_BYTES >> 20} MiB", str(path))
