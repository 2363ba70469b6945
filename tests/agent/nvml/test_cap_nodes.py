"""Which device nodes are made for MIG capabilities."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from divvy.agent.nvml.cap_nodes import make_cap_nodes


def test_nodes_are_made_for_the_instances_that_exist(tmp_path: Path) -> None:
    minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text(
        "config 1\nmonitor 2\n"
        "gpu0/gi0/access 3\ngpu0/gi0/ci0/access 4\n"
        "gpu0/gi1/access 12\ngpu0/gi1/ci0/access 13\ngpu0/gi1/ci1/access 14\n"
        "gpu1/gi1/access 147\n"
    )
    (tmp_path / "proc/devices").write_text("Character devices:\n234 nvidia-caps\n")
    (tmp_path / "dev").mkdir()
    capabilities = tmp_path / "proc/driver/nvidia/capabilities"
    for access in ("mig/config", "gpu0/mig/gi1/access", "gpu0/mig/gi1/ci0/access"):
        (capabilities / access).parent.mkdir(parents=True, exist_ok=True)
        (capabilities / access).touch()
    assert make_cap_nodes(tmp_path) == ["nvidia-cap12", "nvidia-cap13"]
    for minor in (12, 13):
        found = (tmp_path / f"dev/nvidia-caps/nvidia-cap{minor}").stat()
        assert (found.st_rdev, found.st_mode) == (os.makedev(234, minor), stat.S_IFCHR | 0o444)
    assert make_cap_nodes(tmp_path) == []


@pytest.mark.parametrize("old", ["another major", "a link to nothing"])
def test_a_node_of_an_earlier_driver_is_made_again(tmp_path: Path, old: str) -> None:
    """The major is given out when the module is loaded; the node would open another device."""
    access = tmp_path / "proc/driver/nvidia/capabilities/gpu0/mig/gi1/access"
    access.parent.mkdir(parents=True)
    access.touch()
    minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text("gpu0/gi1/access 12\n")
    (tmp_path / "proc/devices").write_text("Character devices:\n234 nvidia-caps\n")
    node = tmp_path / "dev/nvidia-caps/nvidia-cap12"
    node.parent.mkdir(parents=True)
    if old == "another major":
        os.mknod(node, stat.S_IFCHR | 0o444, os.makedev(235, 12))
    else:
        node.symlink_to("nothing")
    assert make_cap_nodes(tmp_path) == ["nvidia-cap12"]
    assert node.lstat().st_rdev == os.makedev(234, 12)
    assert make_cap_nodes(tmp_path) == []


def test_a_driver_without_capabilities_needs_none(tmp_path: Path) -> None:
    assert make_cap_nodes(tmp_path) == []
