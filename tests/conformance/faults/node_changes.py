"""What happens to pods and MIG devices whenever anything happens to their node."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.beside import repeating
from tests.conformance.faults.agents import agent_id
from tests.conformance.faults.fault import A100, H100, Options
from tests.conformance.scene import Scene


@contextmanager
def killed_pods(scene: Scene) -> Iterator[Options]:
    """End what runs on a node's GPUs whenever anything happens to the node."""
    # The pattern does not match the command line that it stands in.
    kill = (
        "for each in /proc/[0-9]*; do grep -qs 'ech[o] computed' $each/cmdline"
        " && kill -9 ${each#/proc/}; done; true"
    )
    with _at_changes(scene, H100, kill):
        yield {}


@contextmanager
def destroyed_mig_devices(scene: Scene) -> Iterator[Options]:
    """Destroy a node's MIG devices, as another tool would, whenever anything happens to it."""
    with _at_changes(scene, A100, "nvidia-smi mig -dci; nvidia-smi mig -dgi; true"):
        yield {}


@contextmanager
def cordoned(scene: Scene) -> Iterator[Options]:
    scene.deployed.lab.kubectl("cordon", H100)
    try:
        yield {}
    finally:
        scene.deployed.lab.kubectl("uncordon", H100)


@contextmanager
def _at_changes(scene: Scene, node: str, script: str) -> Iterator[None]:
    """Run a shell script on a node whenever anything happens to the node."""
    known = _signature(scene, node)

    def look() -> None:
        nonlocal known
        now = _signature(scene, node)
        if now != known:
            scene.deployed.on_node(node, "sh", "-c", script)
        known = now

    with repeating(look, 0.2):
        yield


def _signature(scene: Scene, node: str) -> tuple[object, ...]:
    """Return what any of the disruptions changes first."""
    kubelets = scene.deployed.on_node(
        node, "sh", "-c", "grep -lx kubelet /proc/[0-9]*/comm 2>/dev/null; true"
    )
    metadata = scene.deployed.lab.get("node", node)["metadata"]
    profile = metadata["labels"].get("divvy.gpu/profile")
    state = json.loads(metadata["annotations"].get("divvy.gpu/status", "{}")).get("state")
    return (kubelets, profile, state, agent_id(scene, node))
