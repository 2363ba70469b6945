"""Control groups of both versions, against directories that look like theirs.

The lab itself runs on the version of the machine; this is what keeps the other one alive.
"""

from pathlib import Path

import pytest

from lab.cluster import cgroups


def _version_1(root: Path) -> None:
    for name in ("memory", "cpuset"):
        (root / name).mkdir()
        (root / name / "cgroup.procs").touch()
        (root / name / "tasks").touch()
    (root / "cpuset" / "cpuset.cpus").write_text("0-3\n")
    (root / "cpuset" / "cpuset.mems").write_text("0\n")
    (root / "cpu").symlink_to("memory")


def test_creates_the_group_in_every_version_1_hierarchy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _version_1(tmp_path)
    monkeypatch.setattr(cgroups, "_MOUNT", tmp_path)
    # The kernel makes these files in a new group, empty; here they are made beforehand.
    for part in ("divvy-lab", "divvy-lab/n"):
        group = tmp_path / "cpuset" / part
        group.mkdir()
        for name in ("tasks", "cpuset.cpus", "cpuset.mems"):
            (group / name).touch()
    cgroups.create("/divvy-lab/n")
    assert (tmp_path / "memory/divvy-lab/n").is_dir()
    assert (tmp_path / "cpuset/divvy-lab/n/cpuset.cpus").read_text() == "0-3\n"
    assert (tmp_path / "cpuset/divvy-lab/n/cpuset.mems").read_text() == "0\n"


def test_delegates_every_controller_on_the_way_in_version_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cgroups, "_MOUNT", tmp_path)
    for part in ("", "divvy-lab"):
        (tmp_path / part).mkdir(exist_ok=True)
        (tmp_path / part / "cgroup.controllers").write_text("cpu\n")
    cgroups.create("/divvy-lab/n/system")
    assert (tmp_path / "divvy-lab/n/system").is_dir()
    for part in ("", "divvy-lab"):
        assert (tmp_path / part / "cgroup.subtree_control").read_text() == "+cpu"
    # A group that holds processes must not delegate: that is the innermost one.
    assert not (tmp_path / "divvy-lab/n/system/cgroup.subtree_control").exists()


def test_removes_the_whole_tree_of_every_hierarchy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("memory", "pids"):
        (tmp_path / name / "divvy-lab/n/kubepods").mkdir(parents=True)
        (tmp_path / name / "cgroup.procs").touch()
    monkeypatch.setattr(cgroups, "_MOUNT", tmp_path)
    cgroups.remove("/divvy-lab/n")
    assert (tmp_path / "memory/divvy-lab").is_dir()
    assert not (tmp_path / "memory/divvy-lab/n").exists()
    cgroups.remove()
    assert not (tmp_path / "pids/divvy-lab").exists()
