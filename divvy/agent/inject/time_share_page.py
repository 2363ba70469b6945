"""The page by which a share tells the others on a GPU what it uses of its time.

Layout: plugin_image/limiter/share/page.h. Only its own containers can write it.
"""

from __future__ import annotations

import struct
from pathlib import Path

from divvy.agent.inject.tenant_file import cut, opened
from divvy.atomic_file import replace_file

SIZE = 4096
_HEAD = struct.Struct("<II")
_MAGIC = 0x31454750
_MODE = 0o666


def create_page(path: Path, weight: int) -> None:
    """Put an empty page of a share with a weight in per cent in its place; raises OSError.

    Always a new file: who was given the old one may still have it open, and may have changed
    its mode, owner and access control list.
    """
    head = _HEAD.pack(_MAGIC, weight)
    replace_file(path, head + bytes(SIZE - len(head)), _MODE)


def cut_page(path: Path) -> None:
    """Take back what its tenant has beyond a page; raises OSError."""
    with opened(path) as file:
        cut(file, SIZE)
