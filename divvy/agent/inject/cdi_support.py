"""Detects whether this node's container runtime resolves CDI names: by version and files.

Not asked of the runtime: its socket would be a right over every container of the node.
"""

from __future__ import annotations

import logging
import os
import posixpath
import re
import tomllib
from collections import deque
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from divvy.agent.regular_file import read_regular_file
from divvy.model.versions import version_numbers

_TABLES = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
_HOST_FOLDER = "/etc/containerd"
_ROOT_FILE = f"{_HOST_FOLDER}/config.toml"
# Of containerd (its RELEASES.md).
_ON_BY_DEFAULT, _ALWAYS_ON = (2, 0), (2, 4)
_log = logging.getLogger(__name__)


def cdi_is_on(runtime: str, folder: Path) -> bool:
    """Tell it from the node's ``containerRuntimeVersion`` and the host's /etc/containerd.

    A file's word counts before the version's default, the last file's before the others', up to
    containerd 2.3: since 2.4 CDI cannot be switched off.
    If nothing is known it is off: what is granted without CDI works everywhere. What
    cannot be read of the files is logged, once, and counts as not there.
    """
    name, _, version = runtime.partition("://")
    if name == "containerd" and version_numbers(version) >= _ALWAYS_ON:
        return True
    if name in ("containerd", ""):
        setting = None
        for config in _files(folder):
            setting = _cdi_setting(config, setting)
        if setting is not None:
            return setting
    # containerd since 2.0, CRI-O in every version still maintained; never Docker.
    return name == "cri-o" or (name == "containerd" and version_numbers(version) >= _ON_BY_DEFAULT)


def _files(folder: Path) -> Iterator[dict[str, Any]]:
    """Read the root file and what is imported, in the order in which containerd does."""
    pending, seen = deque([_ROOT_FILE]), set()
    while pending:
        path = pending.popleft()
        if path in seen:
            continue
        seen.add(path)
        config = _read(folder, path)
        yield config
        imports = config.get("imports", [])
        if not isinstance(imports, list):
            _report(f"{path}: imports is {imports!r}; a list of paths is expected")
            continue
        for entry in imports:
            pending += _matches(folder, path, entry)


def _matches(folder: Path, path: str, entry: object) -> list[str]:
    """Return the paths that an entry of a file's imports stands for, those in the folder."""
    if not isinstance(entry, str):
        _report(f"{path}: imports has {entry!r}; a path is expected")
        return []
    pattern = posixpath.normpath(posixpath.join(posixpath.dirname(path), entry or "."))
    inside = pattern.removeprefix(f"{_HOST_FOLDER}/")
    if inside == pattern:
        _report(f"{path}: what {entry!r} imports is not below {_HOST_FOLDER} and not seen")
        return []
    # To containerd only a star makes a pattern, and two of them are one.
    if "*" not in inside:
        return [pattern]
    try:
        paths = list(folder.glob(re.sub(r"\*+", "*", inside)))
    except (OSError, ValueError) as error:
        _report(f"{path}: what {entry!r} imports cannot be looked for: {error}")
        return []
    return sorted(f"{_HOST_FOLDER}/{place.relative_to(folder)}" for place in paths)


def _read(folder: Path, path: str) -> dict[str, Any]:
    place = folder / path.removeprefix(f"{_HOST_FOLDER}/")
    try:
        return tomllib.loads(read_regular_file(Path(os.path.realpath(place))).decode())
    except FileNotFoundError:
        if place.is_symlink():
            _report(f"{path} is a link that leads out of {_HOST_FOLDER}; it is not seen")
    except (OSError, ValueError, RecursionError) as error:
        _report(f"{path} cannot be read: {error}")
    return {}


def _cdi_setting(config: dict[str, Any], before: bool | None) -> bool | None:
    plugins = config.get("plugins")
    for table in _TABLES:
        plugin = plugins.get(table) if isinstance(plugins, dict) else None
        word = plugin.get("enable_cdi") if isinstance(plugin, dict) else None
        if isinstance(word, bool):
            return word
    return before


@cache
def _report(problem: str) -> None:
    """Log a problem once: the files are read again and again."""
    _log.warning("containerd's configuration: %s", problem)
