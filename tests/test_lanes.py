"""Parts of the suite that run at once: all of them count, and all are read."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

from divvy.lab.paths import REPOSITORY

SHELL = ("sh", "-c")


def run(*scripts: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*scripts), capture_output=True, text=True, check=False)


def command(*scripts: str) -> list[str]:
    commands = [[*SHELL, script] for script in scripts]
    program = f"import sys; from tests.lanes import run; sys.exit(run({commands!r}))"
    return [sys.executable, "-c", program]


def test_they_run_at_once_and_are_read_in_order(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    # One after the other they would wait for each other for ever.
    done = run(f"cat {pipe}; echo first", f"echo begun > {pipe}; echo second")
    assert (done.returncode, done.stdout) == (0, "begun\nfirst\nsecond\n")


def test_the_failure_of_either_is_the_failure_of_all() -> None:
    assert run("exit 1", "true").returncode == 1
    assert run("true", "exit 5").returncode == 5
    failed = run("echo one failed; exit 1", "echo two passed")
    assert failed.stdout == "one failed\ntwo passed\n"


def test_an_interrupt_reaches_each_once_and_is_waited_for(tmp_path: Path) -> None:
    script = (
        f"trap 'echo x >> {tmp_path}/NAME; sleep 0.5; echo clean; exit 2' INT;"
        f" touch {tmp_path}/ready-NAME; while true; do sleep 0.1; done"
    )
    scripts = [script.replace("NAME", name) for name in ("a", "b")]
    with subprocess.Popen(command(*scripts), stdout=subprocess.PIPE, text=True) as both:
        while not all((tmp_path / f"ready-{name}").exists() for name in ("a", "b")):
            time.sleep(0.05)
        both.send_signal(signal.SIGINT)
        said, _ = both.communicate(timeout=20)
    assert (both.returncode, said) == (2, "clean\nclean\n")
    assert [(tmp_path / name).read_text() for name in ("a", "b")] == ["x\n", "x\n"]


def test_every_test_is_in_one_lane() -> None:
    made = subprocess.run(["make", "--dry-run", "test"], capture_output=True, text=True, check=True)
    lanes = re.findall(r'-m "([^"]+)"', made.stdout)
    others = "not hardware and not shared_lab and not agent_process"
    assert lanes == [others, "agent_process", "shared_lab"]
    collect = [sys.executable, "-m", "pytest", "--collect-only", "-q"]
    files = ["lab/test_cluster.py", "lab/test_lifecycle.py", "agent/test_held.py"]

    def chosen(expression: str) -> set[str]:
        done = subprocess.run(
            [*collect, *(f"tests/{file}" for file in files), "-m", expression],
            cwd=REPOSITORY,
            capture_output=True,
            text=True,
            check=True,
        )
        return {line for line in done.stdout.splitlines() if "::" in line}

    beside, agents, shared = map(chosen, lanes)
    assert beside | agents | shared == chosen("not hardware")
    assert len(beside) + len(agents) + len(shared) == len(chosen("not hardware"))
    assert {name.partition("::")[0] for name in agents} == {"tests/agent/test_held.py"}
    assert any("test_cluster.py" in name for name in shared)
    assert any("test_lifecycle.py" in name for name in beside)
