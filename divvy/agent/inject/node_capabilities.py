"""Whether the node's driver can keep containers within their memory."""

from __future__ import annotations

from pathlib import Path

from divvy.model.enforcement import NodeCapabilities


def node_capabilities(driver: str, cgroup_folder: Path, *, hook: bool) -> NodeCapabilities:
    """Return what a node with this driver can limit memory with.

    ``hook`` tells whether one is run for each container, and can have the driver set a limit.
    """
    # In no hierarchy of version 1, and in the folder that joins several of them, is this file.
    version = 2 if (cgroup_folder / "cgroup.controllers").is_file() else 1
    return NodeCapabilities(driver, version, hook)
