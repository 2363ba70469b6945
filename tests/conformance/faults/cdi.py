"""Specifications that give containers something else than they were allocated."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tests.conformance.faults.fault import A100, Options
from tests.conformance.scene import Scene


def with_cdi(node: str, change: Callable[[Scene, dict[str, Any]], None]) -> Any:
    """Change the CDI specification on a node."""

    @contextmanager
    def inflict(scene: Scene) -> Iterator[Options]:
        before = scene.read_cdi(node)
        after = copy.deepcopy(before)
        change(scene, after)
        with scene.kept_cdi(node, after):
            yield {}
        scene.write_cdi(node, before)

    return inflict


def without_libraries(_: Scene, spec: dict[str, Any]) -> None:
    mounts = spec["containerEdits"]["mounts"]
    mounts[:] = [
        mount
        for mount in mounts
        if not any(name in mount["containerPath"] for name in ("libcuda", "nvidia-smi"))
    ]


def second_gpu(_: Scene, spec: dict[str, Any]) -> None:
    nodes = [device["containerEdits"]["deviceNodes"] for device in spec["devices"]]
    nodes[0] += copy.deepcopy(nodes[1])
    nodes[1][:] = copy.deepcopy(nodes[0])


def swapped_gpus(_: Scene, spec: dict[str, Any]) -> None:
    """Give each GPU's pods the other GPU: every pod has one, as it should."""
    first, second = spec["devices"][:2]
    first["containerEdits"], second["containerEdits"] = (
        second["containerEdits"],
        first["containerEdits"],
    )


def former_device(_: Scene, spec: dict[str, Any]) -> None:
    """Name a MIG device that is no more instead of one that is there."""
    mig = next(device for device in spec["devices"] if device["name"].startswith("MIG-"))
    mig["name"] = "MIG-00000000-0000-0000-0000-000000000000"


def same_gpu(_: Scene, spec: dict[str, Any]) -> None:
    for device in spec["devices"]:
        device["containerEdits"] = copy.deepcopy(spec["devices"][0]["containerEdits"])


def gone_library(_: Scene, spec: dict[str, Any]) -> None:
    for mount in spec["containerEdits"]["mounts"]:
        if mount["containerPath"].endswith("libcuda.so.1"):
            mount["hostPath"] += ".gone"


def unnamed_gpu(_: Scene, spec: dict[str, Any]) -> None:
    """Let each GPU's containers open the other one, under a name that no check looks for."""
    nodes = [
        copy.deepcopy(device["containerEdits"]["deviceNodes"][0]) for device in spec["devices"]
    ]
    for device, node in zip(spec["devices"], reversed(nodes), strict=True):
        device["containerEdits"]["deviceNodes"].append({**node, "path": "/dev/other"})


def writable_sockets(_: Scene, spec: dict[str, Any]) -> None:
    for mount in spec["containerEdits"]["mounts"]:
        if mount["containerPath"] == "/run/nvidia-persistenced":
            mount["options"].remove("ro")


def largest_slice(scene: Scene, spec: dict[str, Any]) -> None:
    listed = scene.deployed.on_node(A100, "nvidia-smi", "-L").splitlines()
    largest = next(line for line in listed if "MIG 3g.20gb" in line)
    uuid = largest.rpartition("UUID: ")[2].rstrip(")")
    devices = {device["name"]: device for device in spec["devices"]}
    for name, device in devices.items():
        if name.startswith("MIG-"):
            device["containerEdits"] = copy.deepcopy(devices[uuid]["containerEdits"])
