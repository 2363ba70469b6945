"""The CDI specification of a node: one device per GPU and MIG device, shared driver files.

Format: Container Device Interface 0.5.0 (cncf-tags/container-device-interface,
SPEC.md). All driver capabilities are present in every container.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from divvy.agent.allocation import CDI_KIND
from divvy.agent.driver_files import DriverFiles
from divvy.agent.hardware import Gpu, Snapshot

SPEC_FILE = "divvy.gpu-gpu.json"
_READ_ONLY = ["ro", "nosuid", "nodev", "rbind", "rprivate"]
_SOCKETS = ["nosuid", "nodev", "noexec", "rbind", "rprivate"]


def cdi_spec(snapshot: Snapshot, files: DriverFiles, root: PurePosixPath) -> dict[str, Any]:
    """Describe every device of ``snapshot``; ``root`` is the driver root as the host sees it."""
    devices = []
    for gpu in snapshot.gpus:
        node = _node(root, f"dev/nvidia{gpu.minor}")
        devices.append({"name": gpu.uuid, "containerEdits": {"deviceNodes": [node]}})
        devices.extend(_mig_devices(gpu, node, root))
    return {
        "cdiVersion": "0.5.0",
        "kind": CDI_KIND,
        "containerEdits": _common(files, root),
        "devices": devices,
    }


def spec_bytes(spec: dict[str, Any]) -> bytes:
    """Render a specification; the same value gives the same bytes."""
    return (json.dumps(spec, indent=1, sort_keys=True) + "\n").encode()


def _mig_devices(gpu: Gpu, node: dict[str, Any], root: PurePosixPath) -> list[dict[str, Any]]:
    found = []
    for instance in gpu.instances:
        if instance.uuid is None or instance.gi_cap is None or instance.ci_cap is None:
            continue
        caps = [
            _node(root, f"dev/nvidia-caps/nvidia-cap{minor}", permissions="r")
            for minor in (instance.gi_cap, instance.ci_cap)
        ]
        found.append({"name": instance.uuid, "containerEdits": {"deviceNodes": [node, *caps]}})
    return found


def _common(files: DriverFiles, root: PurePosixPath) -> dict[str, Any]:
    mounts: list[dict[str, Any]] = []
    for path, names in files.libraries:
        mounts.extend(
            _mount(root / path, f"/{files.library_folder}/{name}", _READ_ONLY) for name in names
        )
    mounts.extend(_mount(root / path, f"/{path}", _READ_ONLY) for path in files.programs)
    mounts.extend(_mount(root / path, f"/{path}", _SOCKETS) for path in files.socket_folders)
    return {
        # Tells NVIDIA's own runtime, where it is the default, to inject nothing by itself.
        "env": ["NVIDIA_VISIBLE_DEVICES=void"],
        "deviceNodes": [_node(root, path) for path in files.control_nodes],
        "mounts": mounts,
    }


def _node(root: PurePosixPath, path: str, permissions: str = "rw") -> dict[str, Any]:
    return {"path": f"/{path}", "hostPath": str(root / path), "permissions": permissions}


def _mount(host: PurePosixPath, container: str, options: Sequence[str]) -> dict[str, Any]:
    return {"hostPath": str(host), "containerPath": container, "options": list(options)}


def write_spec(folder: Path, content: bytes) -> bool:
    """Replace the specification file atomically; False where it held these bytes already."""
    path = folder / SPEC_FILE
    if path.exists() and path.read_bytes() == content:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    # Runtimes read every *.json in the folder: the half-written file has another ending.
    scratch = folder / f".{SPEC_FILE}.new"
    scratch.write_bytes(content)
    scratch.replace(path)
    return True
