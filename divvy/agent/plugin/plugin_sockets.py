"""Other device plugins and drivers of claims in the kubelet's folders."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from divvy.agent.gpu.coexistence import sockets_of_others

# A file system's clock is behind by some milliseconds: of changes within them it tells one.
_SETTLED_NS = 1_000_000_000


def sockets_beside(folders: Iterable[Path]) -> dict[Path, str]:
    """Return the sockets of others in folders that there are: path → whose."""
    sockets: dict[Path, str] = {}
    for folder in folders:
        try:
            names = [entry.name for entry in folder.iterdir()]
        except OSError:
            continue
        sockets |= {folder / name: who for name, who in sockets_of_others(names).items()}
    return sockets


def serving_sockets(sockets: Mapping[Path, str]) -> dict[str, str]:
    """Return those of the sockets on which somebody listens: name → whose."""
    return {path.name: who for path, who in sockets.items() if _listens(path)}


def folders_version(folders: Iterable[Path]) -> tuple[int, ...] | None:
    """Return what stays the same as long as nothing comes to the folders or goes from them.

    None if that cannot be told now: something has just changed, or the clock was put back.
    """
    try:
        changed = tuple(folder.stat().st_mtime_ns for folder in folders)
    except OSError:
        return None
    now = time.time_ns()
    return changed if all(now - moment > _SETTLED_NS for moment in changed) else None


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
