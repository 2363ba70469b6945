"""One process at a time where two would spoil each other's work in a checkout."""

import contextlib
import fcntl
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def turn_at(file: Path) -> Iterator[None]:
    """Wait until no other process has its turn at an existing file, and take it."""
    with file.open() as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
