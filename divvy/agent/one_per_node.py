"""One agent per node: a lock beside the state, held as long as the agent lives."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

_FILE = "agent.lock"


class NodeLock:
    """The right to be this node's agent; the kernel frees it when the process ends."""

    def __init__(self, folder: Path, owner: str) -> None:
        self._path = folder / _FILE
        self._owner = owner
        self._file: int | None = None

    def take(self) -> str:
        """Take the lock; return "" when it is ours, else the name of the agent that has it."""
        if self._file is not None:
            return ""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 256).decode(errors="replace").strip()
            os.close(file)
            return holder or "an agent that does not say its name"
        os.ftruncate(file, 0)
        os.pwrite(file, f"{self._owner}\n".encode(), 0)
        self._file = file
        return ""

    def release(self) -> None:
        """Let another agent have the node."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)
