"""A tmpfs for tenants: mounted once, of its size, without programs or devices, and taken away."""

from __future__ import annotations

import errno
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from divvy.agent.inject.tmpfs import Tmpfs
from lab.fakes.agent import unmount
from tests.agent.inject.bundle import administrator

pytestmark = administrator
SIZE, INODES = 1 << 20, 64


@pytest.fixture
def tmpfs(tmp_path: Path) -> Iterator[Tmpfs]:
    """Give one that is not mounted yet."""
    try:
        yield Tmpfs(tmp_path / "a/folder", "divvy-test", 0o1777, noexec=True)
    finally:
        unmount(tmp_path / "a/folder")


def size(folder: Path) -> tuple[int, int]:
    status = os.statvfs(folder)
    return status.f_blocks * status.f_frsize, status.f_files


def options(folder: Path) -> set[str]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return next(set(mount[3].split(",")) for mount in mounts if mount[1] == str(folder))


def test_mounts_a_file_system_of_that_size(tmpfs: Tmpfs) -> None:
    tmpfs.mount(SIZE, INODES)
    assert size(tmpfs.folder) == (SIZE, INODES)
    assert tmpfs.folder.stat().st_mode & 0o7777 == 0o1777
    assert {"nosuid", "nodev", "noexec"} <= options(tmpfs.folder)
    with (tmpfs.folder / "file").open("wb") as file:
        with pytest.raises(OSError, match="No space left") as full:
            os.posix_fallocate(file.fileno(), 0, SIZE + 1)
        assert full.value.errno == errno.ENOSPC


def test_leaves_a_mounted_file_system_as_it_is(tmpfs: Tmpfs) -> None:
    tmpfs.mount(SIZE, INODES)
    (tmpfs.folder / "file").touch()
    tmpfs.mount(2 * SIZE, 2 * INODES)
    assert (tmpfs.folder / "file").exists()
    assert size(tmpfs.folder) == (SIZE, INODES)


def test_resizes_and_keeps_the_files(tmpfs: Tmpfs) -> None:
    tmpfs.mount(SIZE, INODES)
    (tmpfs.folder / "file").touch()
    tmpfs.resize(2 * SIZE, 2 * INODES)
    assert (tmpfs.folder / "file").exists()
    assert size(tmpfs.folder) == (2 * SIZE, 2 * INODES)
    assert {"nosuid", "nodev", "noexec"} <= options(tmpfs.folder)


def test_unmounts_below_an_open_file(tmpfs: Tmpfs) -> None:
    tmpfs.mount(SIZE, INODES)
    with (tmpfs.folder / "file").open("wb") as file:
        tmpfs.unmount()
        assert not tmpfs.folder.exists()
        file.write(b"still there")
    tmpfs.unmount()


def test_unmounts_another_file_system_in_its_place(tmpfs: Tmpfs) -> None:
    (tmpfs.folder / "folder").mkdir(parents=True)
    (tmpfs.folder / "folder/file").touch()
    tmpfs.mount(SIZE, INODES)
    subprocess.run(["mount", "-t", "tmpfs", "again", str(tmpfs.folder)], check=True)
    tmpfs.unmount()
    assert not tmpfs.folder.exists()


def test_names_a_file_in_its_place_in_the_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(OSError, match="'.*/a"):
        Tmpfs(tmp_path / "a/folder", "divvy-test", 0o700).mount(SIZE, INODES)
