"""The CDI specification: which files of the driver containers get, and that all of them exist."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from hardware_kit.injected import inject
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings

# Without these no program computes; a driver that lacks one is installed in part.
_NEEDED = ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1", "nvidia-smi")
_NODES = ("nvidiactl", "nvidia-uvm")


def run(settings: KitSettings, notes: Notes) -> None:
    """Write both specifications, and look at every path in them."""
    injected = inject(settings)
    notes.equal("the hook is installed", "yes", injected.injection.problem or "yes")
    notes.equal("the limiter is installed", "yes", injected.injection.limiter_problem or "yes")
    uuids = {gpu.uuid for gpu in injected.snapshot.gpus}
    for name, spec in (("plain", injected.spec), ("limited", injected.limited)):
        mounts, nodes = list(_mounts(spec)), list(_nodes(spec))
        missing = [path for path in mounts if not Path(path).exists()]
        missing += [path for path in nodes if not _is_device(path)]
        notes.equal(f"{name}: what it names and is not there", "none", missing or "none")
        described = {device["name"] for device in spec["devices"]}
        notes.equal(f"{name}: GPUs without an entry", 0, len(uuids - described))
        paths = [edit["path"] for hook in [spec["containerEdits"]] for edit in hook["hooks"]]
        runs = all(os.access(path, os.X_OK) for path in paths)
        notes.holds(f"{name}: its hook", paths and runs, "one that can be run", _hooks(paths, runs))
    _tell_files(injected.spec, notes, simulated=settings.machine.simulated)


def _tell_files(spec: dict[str, Any], notes: Notes, *, simulated: bool) -> None:
    libraries = sorted(
        {PurePosixPath(common_mount["containerPath"]).name for common_mount in _common_mounts(spec)}
    )
    nodes = sorted({PurePosixPath(node).name for node in _nodes(spec)})
    missing = [library for library in _NEEDED if library not in libraries]
    missing += [node for node in _NODES if node not in nodes]
    # The simulated driver compiles PTX itself.
    expected = [library for library in missing if not (simulated and "ptxjit" in library)]
    notes.equal("of what every driver has, not given to containers", "none", expected or "none")
    notes.tell("device nodes", nodes)
    notes.tell("files", libraries)


def _hooks(paths: list[str], runs: bool) -> str:
    return f"{len(paths)}, {'can' if runs else 'cannot'} be run"


def _edits(spec: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield spec["containerEdits"]
    for device in spec["devices"]:
        yield device["containerEdits"]


def _common_mounts(spec: dict[str, Any]) -> list[dict[str, Any]]:
    return list(spec["containerEdits"]["mounts"])


def _mounts(spec: dict[str, Any]) -> Iterator[str]:
    for edits in _edits(spec):
        yield from (mount["hostPath"] for mount in edits["mounts"])


def _nodes(spec: dict[str, Any]) -> Iterator[str]:
    for edits in _edits(spec):
        yield from (device_node["hostPath"] for device_node in edits["deviceNodes"])


def _is_device(path: str) -> bool:
    try:
        return stat.S_ISCHR(Path(path).stat().st_mode)
    except OSError:
        return False
