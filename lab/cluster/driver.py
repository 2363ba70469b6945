"""The seam by which a GPU node gets its driver."""

from pathlib import Path

from divvy.model.gpu_models import gpu_model
from lab.cluster.description import Node
from lab.cluster.simulated_driver import BUILT, install_simulated_driver

DRIVER_ROOT = Path("/run/nvidia/driver")
_MIG_MODES = Path("/var/lib/divvy-simulator/mig-modes")
# A newer and an older driver lie beside the loaded one, to be switched to at run time.
_FURTHER_VERSIONS = ("535.183.06", "570.133.20")


def install(node: Node, root: Path) -> None:
    """Install the simulated driver of a node below root (`/run/nvidia/driver`).

    Called by the node's first process, inside all of the node's namespaces and before
    containerd starts, at every start of the node; `/run` is an empty tmpfs then, everything
    else is as the node's last life has left it. What it starts in the background is adopted by
    the node's first process and ends with the node. Not called for nodes without GPUs and
    for nodes with `driver: host`.
    """
    if node.gpus is None:
        return
    root.mkdir(parents=True, exist_ok=True)
    install_simulated_driver(
        root,
        node.name,
        [gpu_model(node.gpus.model)] * node.gpus.count,
        node.driver_version,
        persist=_MIG_MODES,
        # Built before the node was started, whose start has to be quick.
        binaries=BUILT,
        further_versions=[
            further_version
            for further_version in _FURTHER_VERSIONS
            if further_version != node.driver_version
        ],
    )
