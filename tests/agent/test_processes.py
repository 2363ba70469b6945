"""What a process of the host is, and how exactly that one is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest

from divvy.agent import processes
from divvy.agent.containers import Member, Process


@pytest.fixture
def sleeper() -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])


def test_ends_only_the_process_that_it_examined(sleeper: subprocess.Popen[bytes]) -> None:
    mine = Process(sleeper.pid, processes.start_time(sleeper.pid))
    assert not processes.send(replace(mine, started=mine.started - 1), signal.SIGKILL)
    assert sleeper.poll() is None
    assert processes.send(mine, signal.SIGTERM)
    assert sleeper.wait() == -signal.SIGTERM
    assert not processes.send(mine, signal.SIGKILL)


def test_ignores_a_process_outside_pods() -> None:
    assert processes.find_process(os.getpid()) is None


_MISNAMED = """
import sys, time
open("/proc/self/comm", "wb").write(bytes([255]))
print("ready", flush=True)
time.sleep(60)
"""


@pytest.fixture
def misnamed() -> Iterator[subprocess.Popen[bytes]]:
    """Start a process whose name is no text."""
    command = [sys.executable, "-S", "-c", _MISNAMED]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def test_finds_and_ends_a_process_whose_name_is_no_text(
    misnamed: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a program hides what it uses from every limit that the agent watches over."""
    pod = Member("uid", "id")
    monkeypatch.setattr(processes, "member", lambda _: pod)
    process_and_pod = processes.find_process(misnamed.pid)
    assert process_and_pod is not None
    process, where = process_and_pod
    assert (process.pid, where) == (misnamed.pid, pod)
    assert processes.send(process, signal.SIGTERM)
    assert misnamed.wait() == -signal.SIGTERM
