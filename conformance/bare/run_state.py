"""State of a run on this host outside its scratch folder: a lock, sockets, things to put back."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# A socket's path has room for 107 bytes, which a folder for temporary files may use up.
STATE = Path(os.environ.get("DIVVY_VERIFY_STATE", "/var/lib/divvy-verify"))


class NotAlone(Exception):
    """Another run is at work: the two would measure each other."""


@contextmanager
def run_lock(state: Path = STATE) -> Iterator[None]:
    """Keep other runs out; raises NotAlone, OSError."""
    state.mkdir(parents=True, exist_ok=True)
    with (state / "lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            process = file.read().strip()
            raise NotAlone(f"another run is at work on this machine (process {process})") from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield
