"""One run at a time per stack, in the official file backend's lock layout."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import socket
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from divvy.engine.errors import StateProblem
from divvy.engine.state.files import writing
from divvy.engine.state.resource import now


def lock_folder(root: Path, project: str, stack: str) -> Path:
    """Return where the locks of a stack lie below ``.pulumi``."""
    return root / "locks" / "organization" / project / stack


@contextlib.contextmanager
def locked(root: Path, project: str, stack: str) -> Iterator[None]:
    """Hold the stack's lock; raises StateProblem naming who holds it.

    A lock whose process is gone from this very host is stale and is removed.
    """
    folder = lock_folder(root, project, stack)
    own = folder / f"{uuid.uuid4()}.json"
    holder = {
        "pid": os.getpid(),
        "username": _user(),
        "hostname": socket.gethostname(),
        "timestamp": now(),
        **_place(),
    }
    # A kill or a full disk must not leave half a lock: its owner would be unknown.
    half = own.with_suffix(".new")
    try:
        with writing(own):
            folder.mkdir(parents=True, exist_ok=True)
            half.write_text(json.dumps(holder))
            half.rename(own)
    finally:
        half.unlink(missing_ok=True)
    try:
        _refuse_others(folder, own)
        yield
    finally:
        own.unlink(missing_ok=True)


def lock_holder(root: Path, project: str, stack: str) -> str:
    """Return who holds a stack's lock ("USER@HOST (process NUMBER, since TIME)"), or ""."""
    return next((_named(holder) for _, holder in _holders(lock_folder(root, project, stack))), "")


def _refuse_others(folder: Path, own: Path) -> None:
    for lock, holder in _holders(folder):
        if lock == own:
            continue
        stack = folder.name
        if not holder:
            advice = f"if no run is changing the stack, run `divvy cancel -s {stack}`"
            problem = f"the stack {stack} has the lock {lock}, which cannot be read: {advice}"
        else:
            advice = "wait for it to end"
            if not _is_here(holder):
                advice += f"; if it no longer exists, run `divvy cancel -s {stack}`"
            problem = f"the stack {stack} is locked by {_named(holder)}: {advice}"
        raise StateProblem(problem)


def _holders(folder: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the locks and their holders; one whose process is gone from here is removed."""
    for lock in sorted(folder.glob("*.json")):
        holder = _holder(lock)
        if _is_here(holder) and not _alive(holder.get("pid")):
            with contextlib.suppress(OSError):  # a preview may have no right to it
                lock.unlink(missing_ok=True)
        elif holder or lock.exists():  # its run may have ended since the look
            yield lock, holder


def _named(holder: Mapping[str, Any]) -> str:
    return (
        f"{holder.get('username')}@{holder.get('hostname')} (process {holder.get('pid')}, since "
        f"{holder.get('timestamp')})"
    )


def _alive(pid: object) -> bool:
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # another user's
    return True


def break_locks(root: Path, project: str, stack: str) -> int:
    """Remove every lock of a stack and return their number.

    Raises StateProblem for a lock whose process is alive on this very host: two runs at once
    would lose each other's steps.
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
        with writing(lock):
            lock.unlink(missing_ok=True)
    return len(locks)


def _holder(lock: Path) -> dict[str, Any]:
    try:
        content = json.loads(lock.read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _is_here(holder: Mapping[str, Any]) -> bool:
    """Tell whether a holder's process would be seen from here, if it were alive.

    Two containers, or two hosts, may have one name; their processes have numbers of their own.
    The official CLI records the name alone: its holder counts as alive elsewhere.
    """
    return (
        holder.get("hostname") == socket.gethostname()
        and {key: holder.get(key) for key in ("boot", "pids")} == _place()
    )


def _user() -> str:
    """Return who this process runs as; a container's user may have a number and no name."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        return str(os.getuid())


def _place() -> dict[str, str]:
    """Return the running kernel's boot and this process's PID namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    pids = Path("/proc/self/ns/pid")
    return {
        "boot": boot.read_text().strip() if boot.exists() else "",
        "pids": str(pids.readlink()) if pids.is_symlink() else "",
    }
