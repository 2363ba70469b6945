"""Ctrl-C ends every command with 130 and no traceback, also while modules load."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest
import typer
from typer.testing import CliRunner

import divvy.cli.main
from divvy.cli.deploy import _interruptible
from divvy.cli.main import app
from lab.driver_clients.driver_root import eventually
from tests.divvy_command import divvy_environment

INTERRUPTED_LOAD = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n"
PROGRAM = "from divvy.cli.command import main; main()"


@pytest.mark.parametrize("module", ["typer", "yaml"])
def test_ends_with_130_when_interrupted_while_a_module_loads(tmp_path: Path, module: str) -> None:
    (tmp_path / f"{module}.py").write_text(INTERRUPTED_LOAD)
    environment = divvy_environment()
    environment["PYTHONPATH"] = f"{tmp_path}:{environment['PYTHONPATH']}"
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, "plan", "--file", "x.yaml"],
        env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=50, check=False,
    )  # fmt: skip
    assert ended.returncode == 130
    assert "Traceback" not in ended.stderr


def loading(_module: str) -> NoReturn:
    raise KeyboardInterrupt


def asking(_module: str) -> NoReturn:
    """End as typer.prompt does."""
    try:
        loading("prompt")
    except KeyboardInterrupt:
        raise typer.Abort from None


@pytest.mark.parametrize("interrupted", [loading, asking])
def test_ends_with_130_when_interrupted_in_a_command(
    monkeypatch: pytest.MonkeyPatch, interrupted: Callable[[str], NoReturn]
) -> None:
    monkeypatch.setattr(divvy.cli.main, "import_module", interrupted)
    assert CliRunner().invoke(app, ["plan", "-s", "x"]).exit_code == 130


def test_tells_how_to_go_on_with_an_interrupted_change(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(typer.Exit) as ended, _interruptible("divvy up -s prod"):
        loading("helm")
    assert ended.value.exit_code == 130
    words = "Interrupted; nothing is lost. Run `divvy up -s prod` again to go on."
    assert words in capsys.readouterr().err


SUITE = """
import signal, time
from pathlib import Path
def pytest_addoption(parser):
    parser.addoption("--divvy-progress", action="store_true")
def pytest_configure(config):
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    Path("begun").touch()
    try:
        time.sleep(30)
    finally:
        Path("cleaned").touch()
"""
STOPPABLE = """
from pathlib import Path
from divvy.cli import verify
verify.CONFORMANCE = Path("conformance").resolve()
verify._run_suite([])
"""


def test_stops_a_suite_below_a_shell_that_ignores_ctrl_c(tmp_path: Path) -> None:
    """As a shell does for what it runs in the background, and all that this starts."""
    (tmp_path / "conformance").mkdir()
    (tmp_path / "conformance/conftest.py").write_text(SUITE)
    ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-c", STOPPABLE]
    with subprocess.Popen(ignoring, env=divvy_environment(), cwd=tmp_path) as run:
        assert eventually((tmp_path / "begun").exists, 20)
        run.terminate()
        run.wait(20)
    assert (tmp_path / "cleaned").exists()
