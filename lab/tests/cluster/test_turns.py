"""Folders of builds go with their process, however that ends."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from lab.cluster.turns import scratch_folder, turn_at

_BUILD = """\
import pathlib, sys, time
from lab.cluster.turns import scratch_folder
with scratch_folder(pathlib.Path(sys.argv[1]), ".build-") as folder:
    (folder / "rootfs").mkdir()
    print("begun", flush=True)
    time.sleep(60)
"""


def test_removes_what_a_killed_build_has_left_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / ".other-1").mkdir()
    command = [sys.executable, "-c", _BUILD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as building:
        assert building.stdout is not None
        assert building.stdout.readline() == "begun\n"
        with scratch_folder(tmp_path, ".build-") as folder:
            assert len(list(tmp_path.glob(".build-*/rootfs"))) == 1
            assert folder.is_dir()
        building.send_signal(signal.SIGKILL)
    assert len(list(tmp_path.glob(".build-*/rootfs"))) == 1
    with scratch_folder(tmp_path, ".build-") as folder:
        assert sorted(tmp_path.iterdir()) == sorted([folder, tmp_path / ".other-1"])
    assert list(tmp_path.iterdir()) == [tmp_path / ".other-1"]


def test_makes_no_folder_while_another_process_looks_for_abandoned_ones(tmp_path: Path) -> None:
    # One that is new and not yet locked would look abandoned.
    scratch = scratch_folder(tmp_path, ".x-")
    with ThreadPoolExecutor() as threads:
        with turn_at(tmp_path):
            building = threads.submit(scratch.__enter__)
            assert not wait([building], timeout=0.2).done
            assert list(tmp_path.iterdir()) == []
        assert building.result(10).is_dir()
    scratch.__exit__(None, None, None)


def test_goes_on_if_a_folder_goes_while_it_looks(tmp_path: Path) -> None:
    (tmp_path / ".x-1").symlink_to("gone")
    with scratch_folder(tmp_path, ".x-") as folder:
        assert folder.is_dir()


def test_removes_its_folder_after_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full"), scratch_folder(tmp_path / "new", ".x-"):
        raise OSError("full")
    assert list((tmp_path / "new").iterdir()) == []


def test_waits_its_turn_at_a_file_on_nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock = fcntl.flock

    def lock_as_nfs(descriptor: int, operation: int) -> None:
        if fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", lock_as_nfs)
    file = tmp_path / "dev.txt"
    file.write_text("pinned")
    with turn_at(file), file.open() as other, pytest.raises(BlockingIOError):
        lock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert file.read_text() == "pinned"
    # Nobody writes in a checkout that is read-only.
    monkeypatch.setattr(os, "access", lambda *_: False)
    with turn_at(file), file.open() as other:
        lock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_goes_on_without_locks_and_removes_nothing_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As NFS answers for a file that is not open for writing, and for every folder.
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.EBADF, "Bad file descriptor")

    monkeypatch.setattr(fcntl, "flock", refuse)
    (tmp_path / ".x-1").mkdir()
    with turn_at(tmp_path), scratch_folder(tmp_path, ".x-") as folder:
        assert sorted(tmp_path.iterdir()) == sorted([folder, tmp_path / ".x-1"])
