"""Start the program's process and hear its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from divvy.engine.project import Project

_CHILD = Path(__file__).with_name("program_child.py")


@dataclass(frozen=True)
class ProgramRun:
    """What one run of the program needs to know."""

    project: Project
    stack: str
    preview: bool
    parallel: int
    config: Mapping[str, str]
    secret_keys: tuple[str, ...]


def run_program(run: ProgramRun, address: str, said: Callable[[str], None]) -> int:
    """Run the program against the engine at ``address``; ``said`` hears what it prints."""
    wish = {
        "project": run.project.name,
        "stack": run.stack,
        "preview": run.preview,
        "parallel": run.parallel,
        "config": dict(run.config),
        "secret_keys": list(run.secret_keys),
        "main": str(run.project.main),
        "root": str(run.project.folder),
        "address": address,
    }
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
    with subprocess.Popen(
        [python_of(run.project), str(_CHILD), json.dumps(wish)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        text=True,
    ) as child:
        assert child.stdout is not None
        try:
            for line in child.stdout:
                said(line.rstrip("\n"))
            return child.wait()
        finally:
            if child.poll() is None:
                child.kill()


def python_of(project: Project) -> str:
    """Return the interpreter of the project's virtual environment, or the engine's own."""
    own = project.folder / ".venv/bin/python"
    return str(own) if own.exists() else sys.executable
