"""The page by which a share tells the others on a GPU what it uses of its time.

Layout: plugin_image/limiter/share/page.h. Only its own containers can write it.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

from divvy.agent.inject.atomic_file import replace_file
from divvy.agent.inject.tenant_file import cut, opened

SIZE = 4096
_HEAD = struct.Struct("<II")
_MAGIC = 0x31454750
_MODE = 0o666


def create_page(path: Path, weight: int) -> None:
    """Write an empty page of a share with a weight in per cent; raises OSError.

    A sound one of this weight stays: a container of the same pod may have it mapped.
    """
    head = _HEAD.pack(_MAGIC, weight)
    with contextlib.suppress(OSError), opened(path) as page:
        if os.fstat(page).st_size == SIZE and os.pread(page, len(head), 0) == head:
            # Its tenant before may have been root.
            os.fchown(page, os.geteuid(), os.getegid())
            os.fchmod(page, _MODE)
            return
    replace_file(path, head + bytes(SIZE - len(head)), _MODE)


def cut_page(path: Path) -> None:
    """Take back what its tenant has beyond a page; raises OSError."""
    with opened(path) as file:
        cut(file, SIZE)
