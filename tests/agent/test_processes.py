"""What a process of the host is, and how exactly that one is ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace

import pytest

from divvy.agent import processes
from divvy.agent.containers import Process


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
