"""The lab finds its processes by their mark, and only those."""

import subprocess
import threading
import time
from pathlib import Path

import pytest

from lab.cluster import processes


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # A mark of its own: these tests must never end the processes of a lab in use.
    monkeypatch.setattr(processes, "STATE", tmp_path)
    monkeypatch.setattr(processes, "LOGS", tmp_path / "logs")


def test_finds_a_started_component_with_all_its_processes(tmp_path: Path) -> None:
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


def test_leaves_processes_of_others_alone() -> None:
    with subprocess.Popen(["sleep", "1000"], env={processes.MARK: "/elsewhere:thing"}) as other:
        assert processes.kill_all() == 0
        assert other.poll() is None
        other.kill()


def test_reads_the_environment_of_a_program_that_replaces_itself() -> None:
    again = 'exec sh -c "$AGAIN"'
    with subprocess.Popen(["sh", "-c", again], env={"AGAIN": again, "PATH": "/bin"}) as process:
        entry = Path(f"/proc/{process.pid}")
        looks = [processes.variables(entry) for _ in range(20_000)]
        process.kill()
    assert all(b"AGAIN=exec" in look for look in looks)


@pytest.mark.parametrize("ends", [0, 4096], ids=["begins", "ends"])
def test_finds_a_component_during_its_execve(tmp_path: Path, ends: int) -> None:
    # What proc(5) shows between the new program's memory and its environment, or just after it.
    entry = tmp_path / "1234"
    entry.mkdir()
    (entry / "environ").write_bytes(b"")
    (entry / "stat").write_text("1234 (a (b) c) R 1 " + "0 " * 46 + f"{ends} 0")
    (entry / "exe").symlink_to("/bin/sh")
    later = threading.Timer(0.05, (entry / "environ").write_bytes, [b"A=1\0"])
    later.start()
    assert processes.variables(entry) == b"A=1\0"


@pytest.mark.parametrize("program", ["gone", "with-an-empty-environment"])
def test_does_not_wait_for_an_environment_that_is_empty(tmp_path: Path, program: str) -> None:
    (tmp_path / "environ").write_bytes(b"")
    place = 0 if program == "gone" else 4096
    (tmp_path / "stat").write_text("1234 (sh) Z 1 " + "0 " * 45 + f"{place} {place} 0")
    if program != "gone":
        (tmp_path / "exe").symlink_to("/bin/sh")
    assert processes.variables(tmp_path) == b""
