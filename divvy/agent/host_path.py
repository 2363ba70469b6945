"""Paths of the host, resolved inside the host's root: a link never leads out of it."""

from __future__ import annotations

import os
import stat
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_MAX_LINKS = 40


class HostFailed(Exception):
    """Something on the host is not as it must be, or did not work; the text says what."""


@dataclass(frozen=True)
class Step:
    """One folder, link or file on the way to a file."""

    path: str
    mode: int
    owner: int


@dataclass(frozen=True)
class Place:
    """What a path of the host leads to: an O_PATH descriptor, its path without links, the way."""

    descriptor: int
    path: str
    steps: tuple[Step, ...]

    @property
    def mode(self) -> int:
        """Return the file's type and permissions."""
        return self.steps[-1].mode


@contextmanager
def resolve(root: Path, path: str) -> Iterator[Place]:
    """Resolve a path as openat2 does with RESOLVE_IN_ROOT; FileNotFoundError where it ends.

    Walked by hand, because every step of the way is judged too (``unsafe_step``).
    """
    folders = [os.open(root, os.O_PATH | os.O_DIRECTORY)]
    names: list[str] = []
    steps = [_step("/", folders[0])]
    pending = deque(path.split("/"))
    links = 0
    last: int | None = None
    try:
        while pending:
            name = pending.popleft()
            if name in ("", "."):
                continue
            if last is not None:
                raise NotADirectoryError(f"/{'/'.join(names)} is not a directory")
            if name == "..":
                if names:
                    names.pop()
                    os.close(folders.pop())
                continue
            fd = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folders[-1])
            step = _step("/" + "/".join([*names, name]), fd)
            steps.append(step)
            if stat.S_ISLNK(step.mode):
                target = os.readlink("", dir_fd=fd)
                os.close(fd)
                links += 1
                if links > _MAX_LINKS:
                    raise HostFailed(f"{path} is a symlink loop")
                if target.startswith("/"):
                    while names:
                        names.pop()
                        os.close(folders.pop())
                pending.extendleft(reversed(target.split("/")))
            elif stat.S_ISDIR(step.mode):
                folders.append(fd)
                names.append(name)
            else:
                last = fd
                names.append(name)
        descriptor = folders[-1] if last is None else last
        yield Place(descriptor, "/" + "/".join(names), tuple(steps))
    finally:
        for descriptor in folders if last is None else [*folders, last]:
            os.close(descriptor)


def unsafe_step(steps: tuple[Step, ...]) -> str | None:
    """Return why another user than root can decide what a path leads to; None if none can."""
    for step in steps:
        if step.owner != 0:
            return f"{step.path} belongs to user {step.owner}, not to root"
        # A link has no permissions of its own; a socket's say who may connect.
        judged = stat.S_ISDIR(step.mode) or stat.S_ISREG(step.mode)
        if judged and step.mode & 0o022:
            return f"{step.path} is writable by users other than root"
    return None


def _step(path: str, descriptor: int) -> Step:
    status = os.fstat(descriptor)
    return Step(path, status.st_mode, status.st_uid)
