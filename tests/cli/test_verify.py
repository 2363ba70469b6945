"""How the command runs the suite: what stops both, and what they write under any locale."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from divvy.cli import verify
from divvy.cli.exit_codes import INTERRUPTED
from divvy.cli.main import app
from tests.cli.cluster_api import ClusterApi, write_project

_SUITE = """
import pathlib, signal, sys, time
def stop(number, frame):
    pathlib.Path(sys.argv[1]).write_text("cleaned up")
    sys.exit(2)
signal.signal(signal.SIGTERM, stop)
pathlib.Path(sys.argv[1]).write_text("at work")
time.sleep(30)
"""


@pytest.fixture(autouse=True)
def _usual_signals() -> Iterator[None]:
    """Have them as a program that somebody starts in a terminal."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGHUP,)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_has_the_suite_clean_up_however_it_is_stopped(
    how: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the terminal is gone to which it would say so."""
    state, popen = tmp_path / "state", subprocess.Popen

    def suite(_command: list[str], **options: Any) -> Any:
        return popen([sys.executable, "-c", _SUITE, str(state)], **{**options, "cwd": None})

    def lost(*_: Any, **__: Any) -> None:
        raise OSError(5, "Input/output error")

    def stop() -> None:
        deadline = time.monotonic() + 10
        while not state.exists() or not state.read_text():
            time.sleep(0.05)
        # Without a handler it would be the end of these tests.
        while signal.getsignal(how) is signal.SIG_DFL and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(os.getpid(), how if signal.getsignal(how) is not signal.SIG_DFL else signal.SIGTERM)

    monkeypatch.setattr(verify.subprocess, "Popen", suite)
    monkeypatch.setattr(verify.typer, "echo", lost)
    threading.Thread(target=stop, daemon=True).start()
    began = time.monotonic()
    with pytest.raises(typer.Exit) as ended:
        verify._run_suite([])
    assert ended.value.exit_code == INTERRUPTED
    assert state.read_text() == "cleaned up"
    assert time.monotonic() - began < 25


def test_keeps_running_below_nohup(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers: list[Any] = []
    popen, waits = subprocess.Popen, subprocess.Popen.wait

    def suite(_command: list[str], **options: Any) -> Any:
        return popen([sys.executable, "-c", ""], **{**options, "cwd": None})

    def wait(suite: Any, *arguments: Any) -> int:
        handlers.append(signal.getsignal(signal.SIGHUP))
        return waits(suite, *arguments)

    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(verify.subprocess, "Popen", suite)
    monkeypatch.setattr(popen, "wait", wait)
    assert verify._run_suite([]) == (0, "")
    assert handlers == [signal.SIG_IGN]


_REPORT = r"""
import sys
from pathlib import Path
from conformance.catalogue import CATALOGUE
from conformance.evidence import Evidence
from conformance.report.report import Record, Report
node = {"name": "n1", "pool": "p", "gpus": 2, "model": "T4", "driver": "1", "simulated": False}
target = {"stack": "s", "image": "", "nodes": [node]}
seen = Evidence("a GPU", "\u2026 none \u00b7", "", ["Gr\u00fc\u00dfe"])
record = Record(next(iter(CATALOGUE.values())), "n1", "failed", "\u2192 none", seen, 0.5)
Report(target, [record], began=0.0, ended=1.0).write(Path(sys.argv[1]))
"""
_POOR = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


def test_writes_the_same_report_under_every_locale(tmp_path: Path) -> None:
    written = []
    for number, locale in enumerate((_POOR, {"LC_ALL": "C.UTF-8"})):
        folder = tmp_path / str(number)
        command = [sys.executable, "-c", _REPORT, str(folder)]
        root = Path(verify.__file__).parents[2]
        subprocess.run(command, env={**os.environ, **locale}, cwd=root, check=True)
        written.append({file.name: file.read_bytes() for file in sorted(folder.iterdir())})
    assert list(written[0]) == ["ctrf.json", "junit.xml", "report.html", "report.yaml"]
    assert written[0] == written[1]


def test_runs_the_suite_in_utf_8(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    popen = subprocess.Popen

    def suite(command: list[str], **options: Any) -> Any:
        commands.append(command)
        return popen([sys.executable, "-c", ""], **{**options, "cwd": None})

    monkeypatch.setattr(verify.subprocess, "Popen", suite)
    verify._run_suite([])
    (command,) = commands
    assert command[:3] == [sys.executable, "-X", "utf8"]


def test_ends_at_once_where_divvy_is_not_deployed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_project(tmp_path, monkeypatch)
    ClusterApi().serve(monkeypatch, verify)
    monkeypatch.setattr(verify, "_run_suite", lambda _: pytest.fail("the suite was started"))
    result = CliRunner().invoke(app, ["verify", "-s", "prod"])
    assert result.exit_code == 2, result.output
    assert "Divvy is not deployed here" in result.stderr
    assert "run divvy up -s prod" in result.stderr


@pytest.mark.parametrize("host", [None, "ssh://gpu-1"])
def test_names_folders_of_this_host_from_where_it_was_called(
    host: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments: list[str] = []

    def suite(given: list[str]) -> tuple[int, str]:
        arguments.extend(given)
        return 4, "no driver"

    monkeypatch.setattr(verify, "_run_suite", suite)
    monkeypatch.chdir(tmp_path)
    options = ["--driver-root=root", "--workloads=programs", *([f"--host={host}"] if host else [])]
    result = CliRunner().invoke(app, ["verify", "--bare", *options])
    assert (result.exit_code, "no driver" in result.stderr) == (1, True), result.output
    assert f"--workloads={tmp_path / 'programs'}" in arguments
    assert f"--driver-root={'root' if host else tmp_path / 'root'}" in arguments
