"""The CDI specification of a node: one device per GPU and MIG device, shared driver files.

Format: Container Device Interface 0.5.0 (cncf-tags/container-device-interface,
SPEC.md). All driver capabilities are present in every container.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from divvy.agent.inject.container_edits import ContainerEdits
from divvy.agent.inject.hook import HookCall
from divvy.agent.inject.problem import NotWritten
from divvy.atomic_file import replace_file
from divvy.model.contract import CDI_FILE, CDI_KIND

_MODE = 0o644


def cdi_spec(
    common: ContainerEdits,
    devices: Mapping[str, ContainerEdits],
    hooks: Iterable[HookCall],
    kind: str = CDI_KIND,
) -> dict[str, Any]:
    """Describe every device by its UUID, and what all of them share."""
    return {
        "cdiVersion": "0.5.0",
        "kind": kind,
        "containerEdits": {
            "env": [f"{name}={value}" for name, value in common.env.items()],
            **_edits(common),
            "hooks": [_hook(call) for call in hooks],
        },
        "devices": [
            {"name": uuid, "containerEdits": _edits(edits)} for uuid, edits in devices.items()
        ],
    }


def spec_bytes(spec: dict[str, Any]) -> bytes:
    """Render a specification; the same value gives the same bytes."""
    # In one line: Python indents in Python, 50 times as slow as json's C.
    return (json.dumps(spec, sort_keys=True) + "\n").encode()


def _edits(edits: ContainerEdits) -> dict[str, Any]:
    return {
        "deviceNodes": [
            {"path": node.path, "hostPath": node.host, "permissions": node.permissions}
            for node in edits.nodes
        ],
        "mounts": [
            {"hostPath": mount.host, "containerPath": mount.path, "options": list(mount.options)}
            for mount in edits.mounts
        ],
    }


def _hook(call: HookCall) -> dict[str, Any]:
    return {
        "hookName": call.stage,
        "path": call.program,
        "args": [Path(call.program).name, *call.arguments],
        # Without any variable here, the runtime would pass on an environment of its choice.
        "env": ["PATH=/nonexistent"],
        "timeout": 60,
    }


def write_spec(folder: Path, content: bytes, name: str = CDI_FILE) -> bool:
    """Replace a specification file; False if it held these bytes, raises NotWritten."""
    path = folder / name
    try:
        if path.exists() and path.read_bytes() == content:
            return False
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, content, _MODE)
    except OSError as error:
        raise NotWritten(f"the CDI specification is not written: {error}") from error
    return True
