"""The program's process, whatever it prints and however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from divvy.engine.program import Program, ProgramRun
from divvy.stack.project import find_project
from tests.simulator.driver_root import eventually

# Half a character, a byte of another encoding, and a line that is none.
ODD = r"printf 'caf\351\n\303\n'; printf 'end'"


def write_python(folder: Path, script: str) -> None:
    """Write a shell script in the place of a project's Python."""
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\ncd {folder}\n{script}\n")
    python.chmod(0o755)


def run_of(folder: Path, script: str) -> tuple[int, list[str], list[object]]:
    """Run a shell script in the place of Python; return its end, its lines and what it declared."""
    (folder / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    write_python(folder, script)
    project = find_project(folder)
    lines: list[str] = []
    declared: list[object] = []
    with contextlib.closing(Program(project)) as program:
        run = ProgramRun(project, "dev", False, 1, {}, ())
        code = program.run(run, "127.0.0.1:1", declared.append, lines.append)
    return code, lines, declared


def test_passes_on_lines_of_any_encoding(tmp_path: Path) -> None:
    code, lines, _ = run_of(tmp_path, f"{ODD}; exit 3")
    assert (code, lines) == (3, ["caf\ufffd", "\ufffd", "end"])


def test_leaves_what_a_program_has_started_behind(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    write_python(tmp_path, "sleep 60 &\necho $! > started.new && mv started.new started\nwait")
    program = Program(find_project(tmp_path))
    started = tmp_path / "started"
    assert eventually(started.exists)
    began = time.monotonic()
    program.close()
    os.kill(int(started.read_text()), signal.SIGKILL)
    assert time.monotonic() - began < 30


def test_reports_a_program_that_ends_before_it_reads_what_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[object] = []
    monkeypatch.setattr(threading, "excepthook", problems.append)
    code, lines, declared = run_of(tmp_path, "sleep 0.3; echo no SDK; exit 1")
    assert (code, lines, declared, problems) == (1, ["no SDK"], [None], [])
