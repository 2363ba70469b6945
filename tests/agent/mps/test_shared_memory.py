"""What containers leave in a GPU's /dev/shm is removed, and nothing that a process has open."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from divvy.agent.mps.answers import NoAnswer
from divvy.agent.mps.daemon import MpsDaemon
from divvy.agent.mps.shared_memory import remove_left


def test_removes_what_no_process_has_open(tmp_path: Path) -> None:
    for name in ("open", "left"):
        (tmp_path / name).touch()
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with (tmp_path / "open").open():
        assert remove_left(tmp_path, [os.getpid(), ended.pid])
    assert [path.name for path in tmp_path.iterdir()] == ["open"]


@pytest.mark.parametrize("unread", ["maps", "fd"])
def test_removes_nothing_where_it_is_not_known_what_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unread: str
) -> None:
    """An agent without a file descriptor left sees no process's files, and the files are in use."""
    read_bytes, iterdir = Path.read_bytes, Path.iterdir

    def refuse(path: Path) -> None:
        if path.name == unread:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(Path, "read_bytes", lambda path: refuse(path) or read_bytes(path))
    monkeypatch.setattr(Path, "iterdir", lambda path: refuse(path) or iterdir(path))
    monkeypatch.setattr("divvy.agent.mps.daemon.has_files", lambda _folder: True)
    monkeypatch.setattr(MpsDaemon, "alive", True)
    monkeypatch.setattr("divvy.agent.mps.daemon.session", lambda _leader: [os.getpid()])
    daemon = MpsDaemon(tmp_path, tmp_path / "pipes", tmp_path / "memory", "GPU-0", lambda: None)
    (tmp_path / "memory").mkdir()
    in_use = tmp_path / "memory/cuda.shm.0"
    in_use.touch()
    with in_use.open(), pytest.raises(NoAnswer, match="Too many open files"):
        daemon.remove_left()
    assert in_use.exists()
