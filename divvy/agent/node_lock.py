"""One agent per node: a lock on the folder of the state, held as long as the agent lives."""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

_OWNER = "agent.owner"
_UNNAMED = "an agent that does not say its name"


class NodeLock:
    """The right to be this node's agent; the kernel frees it when the process ends."""

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        self._locked: int | None = None

    def take(self) -> str:
        """Take the lock; return "" when it is ours, else the name of the agent that has it.

        The lock is on the folder, which needs no space on a full disk; the name beside it does.
        """
        if self._locked is not None:
            return ""
        self._folder.mkdir(parents=True, exist_ok=True)
        owner = self._folder / _OWNER
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            with contextlib.suppress(OSError):
                return owner.read_text(errors="replace").strip() or _UNNAMED
            return _UNNAMED
        with contextlib.suppress(OSError):
            owner.write_text(f"{self._owner}\n")
        self._locked = folder
        return ""

    def release(self) -> None:
        """Let another agent have the node."""
        folder, self._locked = self._locked, None
        if folder is not None:
            os.close(folder)
