"""Files that the agent's image brings and containers use: below a host folder named by digest."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from divvy.agent.regular_file import read_regular_file
from divvy.atomic_file import replace_file, sync_folder

_log = logging.getLogger(__name__)
_MODE = 0o555


def install_files(folder: Path, kind: str, contents: Mapping[str, bytes]) -> Path:
    """Write files below ``folder``/``kind``-digest and return that; raises OSError.

    The path carries the content's digest: containers that are being created meanwhile go
    on with the files of the image before. What is there already is compared with the
    image's and replaced where it differs: a power failure may have cut it off, and who
    can write it runs programs as the host's root.
    """
    place = folder / f"{kind}-{digest(contents.values())}"
    place.mkdir(parents=True, exist_ok=True)
    sync_folder(folder)
    for name, content in contents.items():
        _install(place / name, content)
    return place


def all_there(*files: Path) -> bool:
    """Return whether the installed files are still there."""
    return all(file.is_file() for file in files)


def digest(contents: Iterable[bytes]) -> str:
    """Return what an installed folder's name carries of its contents."""
    return hashlib.sha256(b"".join(contents)).hexdigest()[:16]


def _install(path: Path, content: bytes) -> None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        replace_file(path, content, _MODE)
        return
    wanted = (stat.S_IFREG | _MODE, os.geteuid(), len(content))
    seen = (status.st_mode, status.st_uid, status.st_size)
    if seen != wanted or read_regular_file(path) != content:
        _log.warning("%s differs from the installed file: replacing it", path)
        if stat.S_ISDIR(status.st_mode):
            shutil.rmtree(path)  # made by a container runtime that found no source of a mount
        replace_file(path, content, _MODE)
