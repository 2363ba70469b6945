"""Which device nodes are made for MIG capabilities."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from divvy.agent.gpu.hardware import MigInstance
from divvy.agent.nvml.cap_nodes import cap_minors, make_cap_nodes
from tests.agent.devices import gpu, instance, snapshot


def driver(root: Path) -> None:
    (root / "proc").mkdir()
    (root / "proc/devices").write_text("Character devices:\n234 nvidia-caps\n")
    (root / "dev").mkdir()


def test_creates_the_nodes_of_mig_devices(tmp_path: Path) -> None:
    driver(tmp_path)
    assert make_cap_nodes(tmp_path, {13, 12}) == ["nvidia-cap12", "nvidia-cap13"]
    for minor in (12, 13):
        status = (tmp_path / f"dev/nvidia-caps/nvidia-cap{minor}").stat()
        assert (status.st_rdev, status.st_mode) == (os.makedev(234, minor), stat.S_IFCHR | 0o444)
    assert make_cap_nodes(tmp_path, {13, 12}) == []


def test_lists_the_capabilities_of_existing_mig_devices() -> None:
    half = MigInstance(3, 19, 4, 1, gi_cap=13)  # without a compute instance
    gone = replace(gpu(1, instances=(instance(5, 19, 0, 1),)), lost=True)
    seen = snapshot(gpu(0, instances=(instance(1, 19, 0, 1), half)), gone)
    assert seen.cap_minors == {11, 101, 13}


@pytest.mark.parametrize("old", ["another major", "a link to nothing"])
def test_recreates_a_node_of_an_earlier_driver(tmp_path: Path, old: str) -> None:
    """The major is given out when the module is loaded; the node would open another device."""
    driver(tmp_path)
    node = tmp_path / "dev/nvidia-caps/nvidia-cap12"
    node.parent.mkdir(parents=True)
    if old == "another major":
        os.mknod(node, stat.S_IFCHR | 0o444, os.makedev(235, 12))
    else:
        node.symlink_to("nothing")
    assert make_cap_nodes(tmp_path, {12}) == ["nvidia-cap12"]
    assert node.lstat().st_rdev == os.makedev(234, 12)
    assert make_cap_nodes(tmp_path, {12}) == []


def test_needs_no_nodes_without_capabilities(tmp_path: Path) -> None:
    assert make_cap_nodes(tmp_path, {12}) == []


def test_reads_the_minors_of_each_gpu_alone(tmp_path: Path) -> None:
    minors = tmp_path / "proc/driver/nvidia-caps/mig-minors"
    minors.parent.mkdir(parents=True)
    minors.write_text(
        "config 1\ngpu1/gi1/access 147\ngpu1/gi1/ci0/access 148\ngpu11/gi1/access 9\n"
    )
    assert cap_minors(tmp_path, 1) == {"gi1/access": 147, "gi1/ci0/access": 148}
    assert cap_minors(tmp_path, 2) == {}
