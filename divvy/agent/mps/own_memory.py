"""Run a program whose /dev/shm is another folder.

`python own_memory.py FOLDER PROGRAM [ARGUMENT…]`

A process of its own changes the mounts, so that those of the agent stay as they are; it becomes the
program, which keeps its PID. Mounts of the host still come and go in it.
"""

from __future__ import annotations

import ctypes
import os
import sys

_CLONE_NEWNS = 0x00020000
_MS_BIND, _MS_REC, _MS_SLAVE = 4096, 16384, 1 << 19
_libc = ctypes.CDLL(None, use_errno=True)


def run(folder: str, program: list[str]) -> None:
    """Become ``program``, or raise OSError."""
    _check(_libc.unshare(_CLONE_NEWNS), "unshare")
    _check(_libc.mount(None, b"/", None, _MS_REC | _MS_SLAVE, None), "/")
    _check(_libc.mount(os.fsencode(folder), b"/dev/shm", None, _MS_BIND, None), folder)
    os.execv(program[0], program)  # noqa: S606 (the driver's own program)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    try:
        run(sys.argv[1], sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]} does not start with a /dev/shm of its own: {error}")
