"""The lab finds its processes by their mark, and only those."""

import subprocess
import time
from pathlib import Path

import pytest

from divvy.lab import processes


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A mark of its own: these tests must never end the processes of a lab in use.
    monkeypatch.setattr(processes, "STATE", tmp_path)
    monkeypatch.setattr(processes, "LOGS", tmp_path / "logs")


def test_a_started_component_is_found_with_all_it_has_started(tmp_path: Path) -> None:
    processes.start("thing", ["/bin/sh", "-c", "echo said; sleep 1000 & sleep 1000"])
    deadline = time.monotonic() + 10
    while len(list(processes.running())) < 3:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert processes.find("thing")
    assert processes.find("other") is None
    assert processes.kill_all() >= 3
    assert processes.find("thing") is None
    assert (tmp_path / "logs" / "thing.log").read_text() == "said\n"


def test_processes_of_others_are_left_alone() -> None:
    with subprocess.Popen(["sleep", "1000"], env={processes.MARK: "/elsewhere:thing"}) as other:
        assert processes.kill_all() == 0
        assert other.poll() is None
        other.kill()
