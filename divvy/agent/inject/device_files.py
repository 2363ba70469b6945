"""Other vendors' device files as resources: what ``devices`` of the stack file names."""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePosixPath

from divvy.agent.gpu.device_id import replica_id
from divvy.agent.inject.problem import InjectionProblem
from divvy.agent.plugin.inventory import Device, Resource
from divvy.model import FileDevices
from divvy.model.sharing import Sharing

_DEV = PurePosixPath("/dev")
Find = Callable[[str], Iterable[str]]


def file_resources(entries: Sequence[FileDevices], find: Find) -> tuple[Resource, ...]:
    """Return one resource for every entry whose files this node has, sorted by name.

    ``find`` returns the device files that a path or glob names. Each device of a
    resource stands for all its files: ``count`` containers may hold them at once.
    """
    resources = []
    for entry in sorted(entries, key=lambda entry: entry.resource):
        files = tuple(sorted({path for pattern in entry.paths for path in find(pattern)}))
        if not files:
            continue
        name = entry.resource.replace("/", "-")
        devices = tuple(
            Device(replica_id(name, number), name, name) for number in range(entry.count)
        )
        resources.append(
            Resource(
                entry.resource, devices, "file", Sharing(entry.count, one_per_container=True), files
            )
        )
    return tuple(resources)


def device_files(folder: Path) -> Find:
    """Return a finder over the host's /dev, which this process sees at ``folder``.

    It raises InjectionProblem for what cannot be looked for.
    """

    def find(pattern: str) -> Iterable[str]:
        relative = PurePosixPath(pattern).relative_to(_DEV)
        if not relative.parts or ".." in relative.parts:
            return
        # Of a part with more, two stars are one, as in a shell.
        parts = (part if part == "**" else re.sub(r"\*+", "*", part) for part in relative.parts)
        try:
            paths = [path for path in folder.glob("/".join(parts)) if _is_device(path)]
        except (OSError, ValueError) as error:
            raise InjectionProblem(f"{pattern} cannot be looked for: {error}") from error
        for path in paths:
            yield str(_DEV / path.relative_to(folder))

    return find


def _is_device(path: Path) -> bool:
    try:
        mode = path.lstat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode)
