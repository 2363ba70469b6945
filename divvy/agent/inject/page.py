"""The page by which a share tells the others on a GPU what it uses of its time.

Layout: plugin_image/limiter/share/page.h. Only its own containers can write it.
"""

from __future__ import annotations

import contextlib
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from divvy.agent.inject.atomic_file import replace_file

_SIZE = 4096
_HEAD = struct.Struct("<II")
_MAGIC = 0x31454750
_MODE = 0o666


def create_page(path: Path, weight: int) -> None:
    """Write an empty page of a share with a weight in per cent; raises OSError.

    A sound one of this weight stays: a container of the same pod may have it mapped.
    """
    head = _HEAD.pack(_MAGIC, weight)
    with contextlib.suppress(OSError), _opened(path) as page:
        if os.fstat(page).st_size == _SIZE and os.pread(page, len(head), 0) == head:
            # Its tenant before may have been root.
            os.fchown(page, os.geteuid(), os.getegid())
            os.fchmod(page, _MODE)
            return
    replace_file(path, head + bytes(_SIZE - len(head)), _MODE)


def cut_page(path: Path) -> None:
    """Cut off what a tenant wrote behind its page, before it fills the node's disk."""
    with contextlib.suppress(OSError):
        if path.lstat().st_size > _SIZE:
            with _opened(path) as page:
                os.ftruncate(page, _SIZE)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[int]:
    # Without waiting: a tenant that is root can take a lease on its file (fcntl(2)).
    file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        yield file
    finally:
        os.close(file)
