"""One agent per node: a lock on the folder of the state, held as long as the agent lives.

The name of whose node it is stays beside the lock when that agent ends. Two deployments that select
one node would else take it from each other at each restart, as an update, an eviction or an OOM
kill is, and the other's agent, the first at the lock, would repartition its idle GPUs. It leaves
the lock to the one whose node it is, unless it is told to take the node over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from divvy.agent.regular_file import read_regular_file
from divvy.atomic_file import replace_file

_OWNER = "agent.owner"
_MODE = 0o644
_UNNAMED = "an agent that does not say its name"


class NodeLock:
    """The right to be this node's agent; the kernel frees it when the process ends.

    ``is_free`` tells whether nobody had it when it was last asked for.
    """

    def __init__(self, folder: Path, owner: str) -> None:
        self._folder = folder
        self._owner = owner
        self._locked: int | None = None
        self.is_free = False

    def take(self, *, take_over: bool = False) -> str:
        """Take the lock; return "" when it is ours, else the name of the agent whose node it is.

        With ``take_over`` also of another's node. The lock is on the folder, which needs no space
        on a full disk; the name beside it does.
        """
        if self._locked is not None:
            return ""
        self._folder.mkdir(parents=True, exist_ok=True)
        folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(folder)
            self.is_free = False
            return self._named() or _UNNAMED
        self.is_free = True
        named = self._named()
        if named not in ("", self._owner) and not take_over:
            os.close(folder)
            return named
        if named != self._owner:
            with contextlib.suppress(OSError):
                replace_file(self._folder / _OWNER, f"{self._owner}\n".encode(), _MODE)
        self._locked = folder
        return ""

    def release(self) -> None:
        """Let another agent have the node."""
        folder, self._locked = self._locked, None
        if folder is not None:
            os.close(folder)

    def _named(self) -> str:
        """Return the name of the agent whose node it is, "" if none has had it."""
        try:
            return read_regular_file(self._folder / _OWNER).decode(errors="replace").strip()
        except FileNotFoundError:
            return ""
        except OSError:
            return _UNNAMED
