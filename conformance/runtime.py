"""How a node's container runtime gets devices: what the agent wrote, and what it names."""

from __future__ import annotations

import json
from dataclasses import dataclass

from conformance.site import NODE_RUNTIME, Site

# Runs in the agent's pod, where the driver root of the host is mounted at /driver-root.
_LOOK = """
import json, os
host, here = os.environ["DIVVY_HOST_DRIVER_ROOT"].rstrip("/"), "/driver-root"
spec = json.load(open("/var/run/cdi/divvy.gpu-gpu.json"))
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


@dataclass(frozen=True)
class Specification:
    """What the CDI specification of a node names."""

    gpus: int
    mig_devices: int
    gone: tuple[str, ...]
    files: int

    def __str__(self) -> str:
        gone = ", ".join(self.gone) or "none"
        return f"{self.gpus} GPUs, {self.mig_devices} MIG devices, files that are gone: {gone}"


def specification(site: Site, node: str) -> Specification | None:
    """Read the CDI specification on a node; None where there is no agent."""
    text = site.enter(node, "python3 -c %s", _LOOK)
    if text is None:
        return None
    found = json.loads(text)
    gpus = sum(name.startswith("GPU-") for name in found["names"])
    return Specification(gpus, len(found["names"]) - gpus, tuple(found["gone"]), found["files"])


def runtime_lacks(site: Site, node: str) -> str | None:
    """Return what the node's runtime lacks for CDI; None where Divvy does not prepare it."""
    return site.enter(node, "/usr/bin/python3 -c %s", _LACKS, component=NODE_RUNTIME)
