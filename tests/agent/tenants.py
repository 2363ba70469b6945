"""Pods on GPUs for tests on the lab, and what the kubelet and the node say of them."""

from __future__ import annotations

import json
import sys
from typing import Any

from lab.cluster.paths import REPOSITORY
from tests.deployment import Deployment

NODE, POOL = "gpu-a100", "research"
SHARED, GPU = "nvidia.com/gpu.shared", "nvidia.com/gpu"
_HELD = """
import asyncio, json
from pathlib import Path
from divvy.agent.kubelet.pod_resources import PodResources
async def main():
    asked = PodResources(Path("/var/lib/kubelet/pod-resources/kubelet.sock"))
    held = [[each.pod, each.device_id] for each in await asked.holders()]
    print(json.dumps({"held": held, "free": sorted(await asked.allocatable())}))
    await asked.close()
asyncio.run(main())
"""


def pod(name: str, resource: str, script: str = "sleep 1000", node: str = NODE) -> dict[str, Any]:
    """Return a pod that runs a script and ends when told to."""
    container = {
        "name": "main",
        "command": ["/bin/sh", "-c", f"trap 'exit 0' TERM; {script} & wait"],
        "resources": {"limits": {resource: 1}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "nodeSelector": {"kubernetes.io/hostname": node},
            "containers": [container],
        },
    }


def run(deployed: Deployment, namespace: str, manifest: dict[str, Any]) -> None:
    """Create a pod, with the lab's Debian where it names no image."""
    manifest["metadata"]["namespace"] = namespace
    for container in manifest["spec"]["containers"]:
        container.setdefault("image", deployed.base_image)
    deployed.lab.apply(manifest)


def phase(deployed: Deployment, namespace: str, name: str) -> str:
    """Return a pod's phase."""
    return str(deployed.lab.get("pod", name, f"-n={namespace}")["status"].get("phase"))


def events(deployed: Deployment, namespace: str, reason: str) -> list[str]:
    """Return the messages of a namespace's Events of one reason."""
    event_objects = deployed.lab.get("events", f"-n={namespace}")["items"]
    return [event["message"] for event in event_objects if event["reason"] == reason]


def devices(deployed: Deployment, node: str) -> tuple[dict[str, str], list[str]]:
    """Ask the node's kubelet: pod ("namespace/name") to its device, and all it would hand out."""
    arguments = ("/usr/bin/env", f"PYTHONPATH={REPOSITORY}", sys.executable, "-c", _HELD)
    holdings = json.loads(deployed.on_node(node, *arguments))
    return dict(holdings["held"]), holdings["free"]


def kill_agent(deployed: Deployment, node: str) -> None:
    """End a node's agent as a crash does."""
    deployed.on_node(node, "pkill", "-KILL", "-f", "^/usr/bin/python3 -m divvy.agent$")
