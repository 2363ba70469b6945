"""One run at a time per stack, in the official file backend's lock layout."""

from __future__ import annotations

import getpass
import json
import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from divvy.engine.errors import StateProblem
from divvy.engine.state.resource import now


def lock_folder(root: Path, project: str, stack: str) -> Path:
    """Return where the locks of a stack lie below ``.pulumi``."""
    return root / "locks" / "organization" / project / stack


@contextmanager
def locked(root: Path, project: str, stack: str) -> Iterator[None]:
    """Hold the stack's lock; raises StateProblem naming who holds it.

    A lock whose process is gone from this very host is stale and taken over.
    """
    folder = lock_folder(root, project, stack)
    folder.mkdir(parents=True, exist_ok=True)
    own = folder / f"{uuid.uuid4()}.json"
    holder = {
        "pid": os.getpid(),
        "username": getpass.getuser(),
        "hostname": socket.gethostname(),
        "timestamp": now(),
    }
    own.write_text(json.dumps(holder))
    try:
        _refuse_others(folder, own)
        yield
    finally:
        own.unlink(missing_ok=True)


def _refuse_others(folder: Path, own: Path) -> None:
    for other in sorted(folder.glob("*.json")):
        if other == own:
            continue
        try:
            holder = json.loads(other.read_text())
        except (OSError, ValueError):
            holder = {}
        if holder.get("hostname") == socket.gethostname() and not _alive(holder.get("pid")):
            other.unlink(missing_ok=True)
            continue
        raise StateProblem(
            f"the stack is locked by {holder.get('username', 'somebody')}@"
            f"{holder.get('hostname', 'unknown host')} (process {holder.get('pid')}, since "
            f"{holder.get('timestamp')}): wait for it, or run `divvy cancel` if it is gone"
        )


def _alive(pid: object) -> bool:
    return isinstance(pid, int) and Path(f"/proc/{pid}").exists()


def break_locks(root: Path, project: str, stack: str) -> int:
    """Remove every lock of a stack and return how many there were."""
    found = list(lock_folder(root, project, stack).glob("*.json"))
    for lock in found:
        lock.unlink(missing_ok=True)
    return len(found)
