"""Files that are private to their owner, and on the disk when a function returns."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from divvy.engine.errors import StateProblem


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise StateProblem if the disk does not take what is written (full, read-only)."""
    try:
        yield
    except OSError as error:
        raise StateProblem(f"{path} cannot be written: {error.strerror or error}") from None


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Raise StateProblem if the disk does not give what is to be read."""
    try:
        yield
    except OSError as error:
        raise StateProblem(f"{path} cannot be read: {error.strerror or error}") from None


def write_private(path: Path, text: str) -> None:
    """Write a new file that its owner alone may read."""
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        write_all(descriptor, text.encode())
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write it all: a nearly full disk takes a part of it first."""
    while data:
        data = data[os.write(descriptor, data) :]


def digest(path: Path) -> str:
    """Return a digest of a file's content, "" if it does not exist."""
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.exists() else ""
