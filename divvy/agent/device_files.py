"""Other vendors' device files as resources: what ``devices`` of the stack file names."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from divvy.agent.inventory import REPLICA_SEPARATOR, Device, Resource
from divvy.model import FileDevices

_DEV = PurePosixPath("/dev")
Find = Callable[[str], Iterable[str]]


def file_resources(wishes: Sequence[FileDevices], find: Find) -> tuple[Resource, ...]:
    """Return one resource for every entry whose files this node has, sorted by name.

    ``find`` returns the device files that a path or glob names. Each device of a
    resource stands for all its files: ``count`` containers may hold them at once.
    """
    resources = []
    for wish in sorted(wishes, key=lambda each: each.resource):
        files = tuple(sorted({path for pattern in wish.paths for path in find(pattern)}))
        if not files:
            continue
        name = wish.resource.replace("/", "-")
        devices = tuple(
            Device(f"{name}{REPLICA_SEPARATOR}{number}", name, name) for number in range(wish.count)
        )
        resources.append(
            Resource(
                wish.resource, devices, wish.count, "file", one_per_container=True, files=files
            )
        )
    return tuple(resources)


def device_files(folder: Path) -> Find:
    """Return a finder over the host's /dev, which this process sees at ``folder``."""

    def find(pattern: str) -> Iterable[str]:
        relative = PurePosixPath(pattern).relative_to(_DEV)
        if not relative.parts or ".." in relative.parts:
            return
        for path in folder.glob(str(relative)):
            if _is_device(path):
                yield str(_DEV / path.relative_to(folder))

    return find


def _is_device(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
