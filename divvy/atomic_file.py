"""Replace a file so that it is whole at any time, a power failure included."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, content: bytes, mode: int) -> None:
    """Give a file this content and mode.

    Raises OSError, which names a file also where the system does not. The file is then as it was,
    or has its new content if only its folder could not be synced.
    """
    # Of no ending that a reader of the folder looks for.
    scratch = path.parent / f".{path.name}.new"
    scratch.unlink(missing_ok=True)
    try:
        with scratch.open("xb") as file:
            os.fchmod(file.fileno(), mode)  # before anybody else could read what is in it
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        error.filename = error.filename or str(path)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to the disk; raises OSError, which names it."""
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(opened)
    except OSError as error:
        error.filename = str(folder)
        raise
    finally:
        os.close(opened)
