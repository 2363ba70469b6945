"""Pulumi's own engine: the `pulumi` command, its language hosts and its provider for Kubernetes.

All are built from their modules (tools/). The language hosts are an older release, because later
ones are not published as modules: the one for Python runs the executor of the SDK's own release.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from divvy.lab.paths import REPOSITORY
from divvy.lab.tools import PULUMI, PULUMI_LANGUAGES, PULUMI_TOOLS

# From the SDK's module: the executor of the host for Python, and the provider of dynamic resources.
_OF_SDK = (
    "python/cmd/pulumi-language-python-exec",
    "python/dist/pulumi-resource-pulumi-python",
)


def _sdk() -> Path:
    """Return the SDK's module that the engine is built with."""
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "github.com/pulumi/pulumi/sdk/v3"]
    listed = subprocess.run(command, cwd=PULUMI.module, capture_output=True, text=True, check=True)
    return Path(listed.stdout.strip())


@dataclass(frozen=True)
class OfficialEngine:
    """An installed Pulumi; ``home`` is PULUMI_HOME."""

    home: Path

    def __post_init__(self) -> None:
        for tool in PULUMI_TOOLS:
            tool.build()
        self._programs.mkdir(parents=True)
        # The host runs the executor that lies beside it.
        host = PULUMI_LANGUAGES.bin / "pulumi-language-python"
        of_python = (host, *(_sdk() / name for name in _OF_SDK))
        for path in of_python:
            copied = shutil.copy(path, self._programs)
            Path(copied).chmod(0o755)
        # The plugin as `divvy-gpu[pulumi]` installs it, from the work tree.
        self._write_program("pulumi-resource-divvy", REPOSITORY / "components")

    def _write_program(self, name: str, source: Path) -> None:
        program = self._programs / name
        program.write_text(f'#!/bin/sh\nexec {sys.executable} {source} "$@"\n')
        program.chmod(0o755)

    @property
    def _programs(self) -> Path:
        return self.home / "programs"

    def run(self, folder: Path, *arguments: str, expect: int = 0, **more: str) -> str:
        """Run `pulumi` in a project's folder, which also holds the state; return its output.

        ``more`` are environment variables.
        """
        own = (self._programs, Path(sys.executable).parent, *(tool.bin for tool in PULUMI_TOOLS))
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
        done = subprocess.run(
            [str(PULUMI.bin / "pulumi"), *arguments, "--non-interactive"],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == expect, done.stdout
        return done.stdout
