"""Which processes are control daemons of a folder, among everything else that runs."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from divvy.agent.mps.processes import Process, daemons, start_time

SLEEP = "import sys, time; print('ready', flush=True); time.sleep(60)"


@contextmanager
def running(pipes: Path, *arguments: str, session: bool = True) -> Iterator[int]:
    process = subprocess.Popen(
        [sys.executable, "-S", "-c", SLEEP, *arguments],
        env={"CUDA_MPS_PIPE_DIRECTORY": str(pipes)},
        start_new_session=session,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def test_recognises_a_daemon_by_its_folder(tmp_path: Path) -> None:
    with running(tmp_path / "GPU-0/pipe", "-f") as pid:
        assert daemons(tmp_path) == {"GPU-0": Process(pid, start_time(pid))}
        assert daemons(tmp_path / "GPU-0") == daemons(tmp_path.parent) == {}


@pytest.mark.parametrize(
    ("folder", "arguments", "session"),
    [("GPU-0/pipe", (), True), ("GPU-0/pipe", ("-f",), False), ("", ("-f",), True)],
    ids=["a prompt", "a server in its session", "another program's folder"],
)
def test_takes_no_other_process_for_a_daemon(
    tmp_path: Path, folder: str, arguments: tuple[str, ...], session: bool
) -> None:
    with running(tmp_path / folder, *arguments, session=session):
        assert daemons(tmp_path) == {}


def test_does_not_take_a_process_that_cannot_be_looked_at_for_one_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A daemon would be started beside the one that runs."""
    own = os.getpid()
    assert Process(own, start_time(own)).runs

    def refuse(_path: Path) -> bytes:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(OSError, match="Too many open files"):
        _ = Process(own, 1).runs


def test_takes_no_containers_process_for_a_daemon(tmp_path: Path) -> None:
    """A tenant's, which would be adopted in the place of the daemon that runs."""
    pipes = f"CUDA_MPS_PIPE_DIRECTORY={tmp_path / 'GPU-0/pipe'}"
    script = [sys.executable, "-S", "-c", SLEEP, "-f"]
    command = ["unshare", "--pid", "--fork", "--kill-child", "env", pipes, "setsid", *script]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as container:
        assert container.stdout is not None
        container.stdout.readline()
        others = daemons(tmp_path)
        container.kill()
    assert others == {}


def test_treats_a_zombie_as_ended() -> None:
    process = subprocess.Popen([sys.executable, "-S", "-c", SLEEP], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    known = Process(process.pid, start_time(process.pid))
    assert known.runs
    assert -0.1 < known.age < 60
    os.kill(process.pid, signal.SIGKILL)
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not known.runs
    process.communicate()
    assert not Process(0, 0).runs


def test_looks_at_a_process_whose_name_is_no_text() -> None:
    """It may have the number of a daemon that has ended; an agent would not start beside it."""
    named = f"open('/proc/self/comm', 'wb').write(bytes([255])); {SLEEP}"
    with subprocess.Popen([sys.executable, "-S", "-c", named], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            assert start_time(process.pid)
        finally:
            process.kill()
