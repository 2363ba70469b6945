"""The program's process: started early, told what to run, heard to its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from divvy.engine.errors import NotSupported
from divvy.stack.project import Project

_VIRTUALENV = ".venv"
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


class Program:
    """A process that loads the SDK while the engine starts; it runs one program and ends.

    The process ends with its standard input, so that none outlives the engine.
    """

    def __init__(self, project: Project) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
        self._child = subprocess.Popen(
            [python_of(project), str(_CHILD)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
        )

    def run(self, run: ProgramRun, address: str, said: Callable[[str], None]) -> int:
        """Run against the engine at ``address``; ``said`` hears what the program prints."""
        run_config = {
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
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        try:
            self._child.stdin.write(json.dumps(run_config) + "\n")
            self._child.stdin.flush()
        except BrokenPipeError:
            pass  # it could not even load the SDK: its output says why
        for line in self._child.stdout:
            said(line.rstrip("\n"))
        return self._child.wait()

    def close(self) -> None:
        """End the process if it still runs."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.communicate()


def python_of(project: Project) -> str:
    """Return the interpreter of the project's virtual environment, or the engine's own.

    Raises NotSupported for a project of another language.
    """
    if project.runtime != "python":
        raise NotSupported(
            f"{project.folder / 'Pulumi.yaml'}: runtime {project.runtime!r}: the embedded engine "
            "runs python programs"
        )
    own = project.folder / (project.virtualenv or _VIRTUALENV) / "bin/python"
    if own.exists():
        return str(own)
    # `.venv` is where one lies if there is one; whoever names another means it.
    if project.virtualenv not in ("", _VIRTUALENV):
        raise NotSupported(
            f"{project.folder / 'Pulumi.yaml'}: runtime.options.virtualenv is "
            f"{project.virtualenv}, and {own} does not exist"
        )
    return sys.executable
