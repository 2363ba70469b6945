"""Whether this node's container runtime resolves CDI names: from its version and its files.

Not asked of the runtime: its socket would be a right over every container of the node.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

_TABLES = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri")
_HOST_FOLDER = PurePosixPath("/etc/containerd")


def cdi_is_on(runtime: str, folder: Path) -> bool:
    """Tell it from the node's ``containerRuntimeVersion`` and the host's /etc/containerd.

    A file's word counts before the version's default, the last file's before the others'.
    Where nothing is known it is off: what is granted without CDI works everywhere.
    """
    name, _, version = runtime.partition("://")
    if name in ("containerd", ""):
        said = None
        for config in _files(folder):
            said = _said(config, said)
        if said is not None:
            return said
    # containerd since 2.0, CRI-O in every version still maintained; never Docker.
    return name == "cri-o" or (name == "containerd" and _major(version) >= 2)


def _files(folder: Path) -> Iterator[dict[str, Any]]:
    """Read the root file and what it imports, in the order in which containerd does."""
    root = _read(folder / "config.toml")
    yield root
    for pattern in root.get("imports") or ():
        path = _HOST_FOLDER / str(pattern)
        if path.is_relative_to(_HOST_FOLDER):
            for found in sorted(folder.glob(str(path.relative_to(_HOST_FOLDER)))):
                yield _read(found)


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def _said(config: dict[str, Any], before: bool | None) -> bool | None:
    plugins = config.get("plugins") or {}
    for table in _TABLES:
        word = (plugins.get(table) or {}).get("enable_cdi")
        if isinstance(word, bool):
            return word
    return before


def _major(version: str) -> int:
    digits = version.lstrip("v").split(".", 1)[0]
    return int(digits) if digits.isdigit() else 0
