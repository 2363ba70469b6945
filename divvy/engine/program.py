"""The program's process: started early, sent what to run, read until it ends."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from divvy.engine.errors import NotSupported
from divvy.engine.subset import LEADS_ON, Declaration, declaration_from
from divvy.stack.project import Project

_VIRTUALENV = ".venv"
_CHILD = Path(__file__).with_name("program_child.py")


@dataclass(frozen=True)
class ProgramRun:
    """The parameters of one run of the program."""

    project: Project
    stack: str
    preview: bool
    parallel: int
    config: Mapping[str, str]
    secret_keys: tuple[str, ...]


class Program:
    """A process that loads the SDK while the engine starts; it runs one program and ends.

    A socket connects the two: the engine sends the run, the process what the program declares.
    The process ends when the socket closes, so that it does not outlive the engine. Its standard
    input is empty.
    """

    def __init__(self, project: Project) -> None:
        environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": "ignore"}
        self._socket, remote = socket.socketpair()
        with remote:
            self._child = subprocess.Popen(
                [python_of(project), str(_CHILD), str(remote.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                text=True,
                errors="replace",  # what the program starts may print in any encoding, or none
                pass_fds=[remote.fileno()],
            )

    def run(
        self,
        run: ProgramRun,
        address: str,
        admit: Callable[[list[Declaration] | None], None],
        output: Callable[[str], None],
    ) -> int:
        """Run against the engine at ``address`` and return the exit code.

        ``admit`` receives what the program declares once its main part has run, None if it has
        ended before; ``output`` receives each line that the program prints.
        """
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
        # If it could not load the SDK, its output says why.
        with contextlib.suppress(ConnectionError):
            self._socket.sendall(json.dumps(run_config).encode() + b"\n")
        reader = threading.Thread(target=self._declared, args=(admit,))
        reader.start()
        assert self._child.stdout is not None
        for line in self._child.stdout:
            output(line.rstrip("\n"))
        code = self._child.wait()
        reader.join()
        return code

    def close(self) -> None:
        """End the process if it still runs."""
        if self._child.poll() is None:
            self._child.kill()
        self._child.wait()
        # Not to its end: what the program has started may still hold the other one.
        assert self._child.stdout is not None
        self._child.stdout.close()
        self._socket.close()

    def _declared(self, admit: Callable[[list[Declaration] | None], None]) -> None:
        line = b""
        with self._socket.makefile("rb") as stream, contextlib.suppress(ConnectionError):
            line = stream.readline()
        declared = json.loads(line) if line.endswith(b"\n") else None
        admit(None if declared is None else [declaration_from(entry) for entry in declared])


def python_of(project: Project) -> str:
    """Return the interpreter of the project's virtual environment, or the engine's own.

    Raises NotSupported for a project of another language.
    """
    if project.runtime != "python":
        raise NotSupported(
            f"{project.folder / 'Pulumi.yaml'}: runtime {project.runtime!r} {LEADS_ON}"
        )
    own = project.folder / (project.virtualenv or _VIRTUALENV) / "bin/python"
    if own.exists():
        return str(own)
    # `.venv` is optional; another name is a requirement.
    if project.virtualenv not in ("", _VIRTUALENV):
        raise NotSupported(
            f"{project.folder / 'Pulumi.yaml'}: runtime.options.virtualenv is "
            f"{project.virtualenv}, and {own} does not exist"
        )
    return sys.executable
