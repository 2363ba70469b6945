"""The divvy command of this work tree, in a process of its own, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import typer
from typer.exceptions import TyperException
from typer.testing import CliRunner, Result

from divvy.cli.main import app
from lab.cluster.paths import REPOSITORY
from lab.cluster.tools import HELM


def divvy_command(*arguments: object) -> list[str]:
    """Return the command line; it is found by ``divvy_environment``."""
    program = "from divvy.cli.main import main; main()"
    return [sys.executable, "-c", program, *map(str, arguments)]


def divvy_environment(more: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return this environment, in which Python finds this work tree, and divvy its Helm."""
    path = f"{HELM.bin}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(REPOSITORY), **more}


def run_divvy(
    *arguments: object,
    folder: Path | None = None,
    expect: int | Collection[int] | None = 0,
    timeout: float = 300,
    environment: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[str]:
    """Run it in a folder; fail with its words if it ends with another code than expected."""
    done = subprocess.run(
        divvy_command(*arguments),
        cwd=folder,
        env=divvy_environment(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    codes = (expect,) if isinstance(expect, int) else expect
    assert codes is None or done.returncode in codes, done.stdout + done.stderr
    return done


def invoke(*arguments: str) -> Result:
    """Run it in this process."""
    return CliRunner().invoke(app, arguments)


def read_by_divvy(words: Sequence[str]) -> str:
    """Let divvy read the words of a command; return its complaint."""
    command, at = typer.main.get_command(app), 0
    while hasattr(command, "commands"):
        if at == len(words) or words[at].startswith("-"):
            break  # a group alone, or an option of its own
        assert words[at] in command.commands, f"there is no `divvy {' '.join(words[: at + 1])}`"
        command, at = command.commands[words[at]], at + 1
    try:
        command.make_context(" ".join(["divvy", *words[:at]]), list(words[at:]))
    except typer.Exit:
        pass  # an option that ends the command, such as --help
    except TyperException as problem:
        # A sentence may name a command without what has to follow it.
        return "" if str(problem).startswith("Missing parameter") else str(problem)
    return ""
