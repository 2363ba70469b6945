"""The devices of a node's container runtime: what the agent wrote, and what it names."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.observe.nvml_script import OPEN_NVML, run_nvml_script
from divvy.model.api_names import DRIVER_ROOT, DRIVER_ROOT_VARIABLE, Component

# Runs in the agent's pod, where the host's driver root is mounted at DRIVER_ROOT.
_LOOK = """
import json, os, pathlib, sys
from divvy.agent.regular_file import read_regular_file
file, here, variable = sys.argv[1:]
host = os.environ[variable].rstrip("/")
spec = json.loads(read_regular_file(pathlib.Path(file)))
edits = [spec["containerEdits"], *(one["containerEdits"] for one in spec["devices"])]
nodes = [node for edit in edits for node in edit.get("deviceNodes", ())]
mounts = [mount for edit in edits for mount in edit.get("mounts", ())]
named = {node.get("hostPath", node["path"]) for node in nodes}
named |= {mount["hostPath"] for mount in mounts}
gone = [path for path in named if not os.path.exists(here + path.removeprefix(host))]
names = [device["name"] for device in spec["devices"]]
print(json.dumps({"names": names, "gone": sorted(gone), "files": len(named)}))
"""
# Runs in the pod that prepares the runtime, with the code that prepared it.
_LACKS = """
from divvy.agent.node_runtime.host import Host
from divvy.agent.node_runtime.prepare import prepare_containerd
print("; ".join(prepare_containerd(Host(), change=False)))
"""
# The agent's way to the driver and to the kubelet, in processes of their own that know nothing of
# what the agent has in mind.
_DEVICES = (
    OPEN_NVML
    + """\
uuids = []
for index in range(nvml.nvmlDeviceGetCount()):
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    uuids += [nvml.nvmlDeviceGetUUID(gpu), *parts(gpu)]
print(json.dumps(uuids))
"""
)
_HELD = """
import asyncio, json, os
from pathlib import Path
from divvy.agent.kubelet.pod_resources import PodResources
async def ask():
    client = PodResources(Path("/var/lib/kubelet/pod-resources/kubelet.sock"))
    held = {}
    for one in await client.holders():
        held.setdefault(one.pod, []).append(one.device_id)
    await client.close()
    print(json.dumps(held))
asyncio.run(ask())
"""


@dataclass(frozen=True)
class Specification:
    """What the CDI specification of a node names."""

    names: tuple[str, ...]
    gone: tuple[str, ...]
    files: int

    @property
    def gpus(self) -> int:
        """Return how many GPUs it names."""
        return sum(name.startswith("GPU-") for name in self.names)

    @property
    def mig_devices(self) -> int:
        """Return how many MIG devices it names."""
        return len(self.names) - self.gpus


def specification(target: ClusterUnderTest, node: str) -> Specification | None:
    """Read the CDI specification on a node; None without an agent."""
    text = target.enter(
        node,
        "python3 -c %s %s %s %s",
        _LOOK,
        target.implementation.cdi_file,
        DRIVER_ROOT,
        DRIVER_ROOT_VARIABLE,
    )
    if text is None:
        return None
    specification = json.loads(text)
    return Specification(
        tuple(specification["names"]), tuple(specification["gone"]), specification["files"]
    )


def driver_devices(target: ClusterUnderTest, node: str) -> frozenset[str] | None:
    """Return the UUIDs of all GPUs and MIG devices, as the driver names them to a new process.

    None without an agent, in whose pod the driver is asked.
    """
    uuids = run_nvml_script(target, node, _DEVICES)
    return None if uuids is None else frozenset(uuids)


def kernel_module(target: ClusterUnderTest, node: str) -> str | None:
    """Return the version of the loaded kernel module, None if nothing tells it."""
    own = f"{DRIVER_ROOT}/proc/driver/nvidia/version"
    text = target.enter(node, "cat %s 2>/dev/null || cat /proc/driver/nvidia/version", own)
    version = re.search(r"\d+\.\d+(\.\d+)?", text or "")
    return None if version is None else version.group()


def held_devices(target: ClusterUnderTest, node: str) -> Mapping[str, tuple[str, ...]] | None:
    """Return namespace/pod → IDs of its devices, as the kubelet tells them on its own socket.

    None without an agent, whose pod has the socket.
    """
    text = target.enter(node, "python3 -c %s", _HELD)
    return None if text is None else {pod: tuple(held) for pod, held in json.loads(text).items()}


def runtime_lacks(target: ClusterUnderTest, node: str) -> str | None:
    """Return what the node's runtime lacks for CDI; None if Divvy does not prepare it."""
    return target.enter(node, "/usr/bin/python3 -c %s", _LACKS, component=Component.NODE_RUNTIME)
