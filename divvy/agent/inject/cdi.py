"""The CDI specification of a node: one device per GPU and MIG device, shared driver files.

Format: Container Device Interface 0.5.0 (cncf-tags/container-device-interface,
SPEC.md). All driver capabilities are present in every container.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from divvy.agent.inject.container_edits import ContainerEdits
from divvy.agent.inject.hook import HookCall
from divvy.agent.inject.problem import NotWritten
from divvy.agent.regular_file import read_regular_file
from divvy.atomic_file import replace_file
from divvy.model.api_names import CDI_FILE, CDI_KIND, DOMAIN

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
    """Replace a specification file; False if it held these bytes, raises NotWritten.

    What cannot be replaced, and gives other device nodes than it should, is removed.
    """
    path = folder / name
    try:
        with suppress(OSError):  # whatever is there instead is replaced
            if read_regular_file(path) == content:
                return False
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, content, _MODE)
    except OSError as error:
        with suppress(OSError):
            _remove_unless_same(path, _device_nodes(content))
        raise NotWritten(f"the CDI specification is not written: {error}") from error
    return True


def keep_described(
    folder: Path, devices: Mapping[str, ContainerEdits], written: Collection[str] = ()
) -> None:
    """Remove the specifications of GPUs that give a device other nodes than it has now.

    Raises NotWritten if one cannot be removed.

    ``written`` are files that were just written. Only a specification leads a container that starts
    again to its GPU. While a driver is loaded again, a GPU may be lost and another one take its
    device node: by the specification of before, the container would get a GPU that another pod has.
    """
    for path in folder.glob(f"{DOMAIN}-*gpu*.json"):
        if path.name not in written and not path.name.startswith(f"{DOMAIN}-claim-"):
            try:
                remove_unless(path, devices)
            except OSError as error:
                raise NotWritten(
                    f"an outdated CDI specification is not removed: {error}"
                ) from error


def remove_unless(path: Path, devices: Mapping[str, ContainerEdits]) -> None:
    """Remove a specification unless all of its devices have these nodes; raises OSError."""
    nodes = {name: _edits(edits)["deviceNodes"] for name, edits in devices.items()}
    _remove_unless_same(path, nodes)


def _remove_unless_same(path: Path, nodes: Mapping[str, Any]) -> None:
    try:
        outdated = not _device_nodes(read_regular_file(path)).items() <= nodes.items()
    except FileNotFoundError:
        return
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        outdated = True
    if outdated:
        path.unlink()


def _device_nodes(content: bytes) -> dict[str, Any]:
    return {
        device["name"]: device["containerEdits"]["deviceNodes"]
        for device in json.loads(content).get("devices", ())
    }
