"""Other device plugins in the kubelet's plugin folder."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from pathlib import Path

from divvy.agent.gpu.coexistence import sockets_of_others

# A file system's clock is behind by some milliseconds: of changes within them it tells one.
_SETTLED_NS = 1_000_000_000


def sockets_beside(folder: Path) -> dict[str, str]:
    """Return the sockets of other device plugins: name → vendor."""
    try:
        names = [entry.name for entry in folder.iterdir()]
    except OSError:
        return {}
    return dict(sockets_of_others(names))


def serving_sockets(folder: Path, sockets: Mapping[str, str]) -> dict[str, str]:
    """Return those of the sockets in a folder on which somebody listens."""
    return {name: who for name, who in sockets.items() if _listens(folder / name)}


def folder_version(folder: Path) -> int | None:
    """Return what stays the same as long as nothing comes to the folder or goes from it.

    None if that cannot be told now: something has just changed, or the clock was put back.
    """
    try:
        changed = folder.stat().st_mtime_ns
    except OSError:
        return None
    return changed if time.time_ns() - changed > _SETTLED_NS else None


def _listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(0.2)
        try:
            client.connect(str(path))
        except (BlockingIOError, TimeoutError):
            return True  # its plugin accepts nobody now
        except OSError:
            return False  # left over from a plugin that is gone
    return True
