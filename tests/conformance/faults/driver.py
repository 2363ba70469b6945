"""GPUs and drivers that are not as they should be."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from tests.conformance.faults.fault import H100, T4, Options
from tests.conformance.scene import Scene


@contextmanager
def uncorrectable_error(scene: Scene) -> Iterator[Options]:
    # The agent withdraws the GPU for the XID that comes with it.
    scene.driver(H100, "fault", "ecc", "1")
    try:
        yield {}
    finally:
        scene.driver(H100, "fault", "clear", "1")
        scene.deployed.until(lambda: scene.deployed.offered(H100) == {"nvidia.com/gpu": 2}, 90)


@contextmanager
def other_module(scene: Scene) -> Iterator[Options]:
    version = "/run/nvidia/driver/proc/driver/nvidia/version"
    before = scene.deployed.on_node(H100, "cat", version)
    scene.on_node_with(H100, before.replace("550.", "570."), "sh", "-c", f"cat > {version}")
    try:
        yield {}
    finally:
        scene.on_node_with(H100, before, "sh", "-c", f"cat > {version}")


@contextmanager
def other_numa(scene: Scene) -> Iterator[Options]:
    """Put a GPU behind another NUMA node than the one that the kubelet was told."""
    folder = "/run/nvidia/driver/sys/bus/pci/devices"
    first = f"{scene.deployed.on_node(H100, 'ls', folder).split()[0]}/numa_node"
    before = scene.deployed.on_node(H100, "cat", f"{folder}/{first}")
    scene.on_node_with(H100, "7\n", "sh", "-c", f"cat > {folder}/{first}")
    try:
        yield {}
    finally:
        scene.on_node_with(H100, before, "sh", "-c", f"cat > {folder}/{first}")


def gpu_that_is(fault: str) -> Callable[[Scene], AbstractContextManager[Options]]:
    """Bring a fault of the second GPU about that the agent does not withdraw it for."""

    @contextmanager
    def inflict(scene: Scene) -> Iterator[Options]:
        scene.driver(H100, "fault", fault, "1")
        try:
            yield {}
        finally:
            scene.driver(H100, "fault", "clear", "1")

    return inflict


@contextmanager
def exclusive_process(scene: Scene) -> Iterator[Options]:
    scene.deployed.on_node(T4, "nvidia-smi", "-c", "EXCLUSIVE_PROCESS")
    try:
        yield {}
    finally:
        scene.deployed.on_node(T4, "nvidia-smi", "-c", "DEFAULT")
