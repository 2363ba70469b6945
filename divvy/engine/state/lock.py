"""One run at a time per stack, in the official file backend's lock layout."""

from __future__ import annotations

import getpass
import json
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from divvy.engine.errors import StateProblem
from divvy.engine.state.files import writing
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
    own = folder / f"{uuid.uuid4()}.json"
    holder = {
        "pid": os.getpid(),
        "username": getpass.getuser(),
        "hostname": socket.gethostname(),
        "timestamp": now(),
    }
    with writing(own):
        folder.mkdir(parents=True, exist_ok=True)
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
        holder = _holder(other)
        if _is_here(holder) and not _alive(holder.get("pid")):
            other.unlink(missing_ok=True)
            continue
        raise StateProblem(
            f"the stack is locked by {holder.get('username', 'somebody')}@"
            f"{holder.get('hostname', 'unknown host')} (process {holder.get('pid')}, since "
            f"{holder.get('timestamp')}): wait for it, or run `divvy cancel` if it is gone"
        )


def _alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


def break_locks(root: Path, project: str, stack: str) -> int:
    """Remove every lock of a stack and return how many there were.

    Raises StateProblem for one whose process lives on this very host: two runs at once would
    lose what the other does.
    """
    locks = sorted(lock_folder(root, project, stack).glob("*.json"))
    for lock in locks:
        holder = _holder(lock)
        if _is_here(holder) and _alive(holder.get("pid")):
            raise StateProblem(
                f"process {holder['pid']} holds the lock {lock} and is alive: wait for it, or end "
                "it first"
            )
    for lock in locks:
        lock.unlink(missing_ok=True)
    return len(locks)


def _holder(lock: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(lock.read_text())
    except (OSError, ValueError):
        return {}
    return content


def _is_here(holder: Mapping[str, Any]) -> bool:
    return holder.get("hostname") == socket.gethostname()
