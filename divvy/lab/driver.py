"""The seam by which a GPU node gets its driver."""

from pathlib import Path

from divvy.lab.description import Node

DRIVER_ROOT = Path("/run/nvidia/driver")


def install(node: Node, root: Path) -> None:
    """Install the simulated driver of a node below root (`/run/nvidia/driver`).

    Called by the node's first process, inside all of the node's namespaces and before
    containerd starts, at every start of the node; `/run` is an empty tmpfs then, everything
    else is as the node's last life has left it. What it starts in the background is adopted by
    the node's first process and ends with the node. Not called for nodes without GPUs and
    for nodes with `driver: host`.
    """
