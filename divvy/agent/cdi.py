"""The CDI specification of a node: one device per GPU and MIG device, shared driver files.

Format: Container Device Interface 0.5.0 (cncf-tags/container-device-interface,
SPEC.md). All driver capabilities are present in every container.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from divvy.agent.allocation import CDI_KIND
from divvy.agent.edits import Edits
from divvy.agent.hook import HookCall

SPEC_FILE = "divvy.gpu-gpu.json"


def cdi_spec(common: Edits, devices: Mapping[str, Edits], hook: HookCall | None) -> dict[str, Any]:
    """Describe every device by its UUID, and what all of them share."""
    hooks = [] if hook is None else [_hook(hook)]
    return {
        "cdiVersion": "0.5.0",
        "kind": CDI_KIND,
        "containerEdits": {
            "env": [f"{name}={value}" for name, value in common.env.items()],
            **_edits(common),
            "hooks": hooks,
        },
        "devices": [
            {"name": uuid, "containerEdits": _edits(edits)} for uuid, edits in devices.items()
        ],
    }


def spec_bytes(spec: dict[str, Any]) -> bytes:
    """Render a specification; the same value gives the same bytes."""
    return (json.dumps(spec, indent=1, sort_keys=True) + "\n").encode()


def _edits(edits: Edits) -> dict[str, Any]:
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
        "hookName": "createContainer",
        "path": call.program,
        "args": [Path(call.program).name, *call.arguments],
        # Without any variable here, the runtime would pass on an environment of its choice.
        "env": ["PATH=/nonexistent"],
        "timeout": 60,
    }


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
