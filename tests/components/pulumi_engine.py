"""Pulumi's own engine: the `pulumi` command, its language hosts and its provider for Kubernetes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from lab.cluster.paths import REPOSITORY
from lab.cluster.pulumi import install_pulumi
from lab.cluster.tools import PULUMI_LANGUAGES, Tool


@dataclass(frozen=True)
class OfficialEngine:
    """An installed Pulumi; ``home`` is PULUMI_HOME, ``languages`` other hosts than Python's."""

    home: Path
    languages: tuple[Tool, ...] = ()

    def __post_init__(self) -> None:
        self._programs.mkdir(parents=True)
        install_pulumi(self._programs)
        for tool in self.languages:
            tool.build()
        # The plugin as `divvy-gpu[pulumi]` installs it, from the work tree.
        self._write_program("pulumi-resource-divvy", REPOSITORY / "components")

    def _write_program(self, name: str, source: Path) -> None:
        program = self._programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {source} "$@"\n')
        program.chmod(0o755)

    @property
    def _programs(self) -> Path:
        return self.home / "programs"

    def start(self, folder: Path, *arguments: str, **more: str) -> subprocess.Popen[str]:
        """Start `pulumi` in a project's folder, which also holds the state, in its own session.

        ``more`` are environment variables.
        """
        hosts = (PULUMI_LANGUAGES, *self.languages)
        own = (self._programs, Path(sys.executable).parent, *(tool.bin for tool in hosts))
        environment = {
            **os.environ,
            "PATH": ":".join([*map(str, own), os.environ["PATH"]]),
            "PYTHONPATH": str(REPOSITORY),
            "PULUMI_HOME": str(self.home),
            "PULUMI_BACKEND_URL": f"file://{folder}",
            "PULUMI_CONFIG_PASSPHRASE": "",
            "PULUMI_SKIP_UPDATE_CHECK": "true",
            "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
            **more,
        }
        return subprocess.Popen(
            [str(self._programs / "pulumi"), *arguments, "--non-interactive"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, folder: Path, *arguments: str, expect: int = 0, **more: str) -> str:
        """Run `pulumi` in a project's folder; return its output."""
        process = self.start(folder, *arguments, **more)
        output, _ = process.communicate(timeout=180)
        assert process.returncode == expect, output
        return output
