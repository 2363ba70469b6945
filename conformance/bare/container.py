"""A container without a container runtime: the kit's C library as an image, and a CDI device."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.bare.container_init import REFUSED
from conformance.bare.kit import Kit
from divvy.agent.inject.container_edits import Mount

_LOADER = "ld-linux-x86-64.so.2"
# The C library of the image, all that the driver's libraries and the workloads need.
_LIBRARIES = (
    *("libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libgcc_s.so.1"),
)
_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib64", "usr/bin", "etc/ld.so.conf.d", "proc", "dev")
_PYTHON = "/opt/python"
_PATH = "PATH=/usr/bin"


@dataclass
class Container:
    """An image with the workloads, and what the CDI specification adds for one device."""

    kit: Kit
    folder: Path
    spec: Mapping[str, Any]
    device: str
    shares: Sequence[Mount] = ()
    environment: list[str] = field(default_factory=list)
    rounds: int = 0

    @property
    def root(self) -> Path:
        """Return the folder of the root file system."""
        return self.folder / "rootfs"

    def make(self) -> None:
        """Lay out the image; raises OSError."""
        for name in _FOLDERS:
            (self.root / name).mkdir(parents=True)
        for name in ("lib", "lib64"):
            (self.root / name).symlink_to(f"usr/{name}")
        (self.root / "tmp").mkdir(mode=0o1777)
        libraries = self.kit.python / "lib"
        shutil.copy(libraries / _LOADER, self.root / "usr/lib64")
        for name in _LIBRARIES:
            shutil.copy(libraries / name, self.root / "usr/lib/x86_64-linux-gnu")
        (self.root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
        for program in (self.kit.workloads / "real").iterdir():
            shutil.copy(program, self.root / "usr/bin")
        shutil.copy(self.kit.workloads / "train.py", self.root / "usr/bin")

    def run(self, *command: object, seconds: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a program of the image to its end; raises subprocess.TimeoutExpired."""
        process = self.start(*command)
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return subprocess.CompletedProcess(process.args, process.returncode, out, "")

    def start(self, *command: object) -> subprocess.Popen[str]:
        """Start a program of the image; its output and errors are one stream."""
        self.rounds += 1
        file = self.folder / f"run-{self.rounds}.json"
        file.write_text(json.dumps(self._specification([str(word) for word in command])))
        return subprocess.Popen(
            [sys.executable, "-m", "conformance.bare.container_init", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def python(self, *arguments: object) -> tuple[object, ...]:
        """Return the command that runs the kit's Python in the image."""
        return (f"{_PYTHON}/bin/python3", *arguments)

    def _specification(self, command: Sequence[str]) -> dict[str, Any]:
        common = self.spec["containerEdits"]
        edits = next(device for device in self.spec["devices"] if device["name"] == self.device)
        own = edits["containerEdits"]
        mounts = [*common["mounts"], *own["mounts"], *map(_plain, self._own_mounts())]
        environment = [_PATH, *common["env"], *self.environment]
        config = {
            "ociVersion": "1.2.0",
            "root": {"path": "rootfs"},
            "process": {"env": environment, "args": command},
            "mounts": [
                {"destination": mount["containerPath"], "source": mount["hostPath"], "type": "bind"}
                for mount in mounts
            ],
        }
        (self.folder / "config.json").write_text(json.dumps(config))
        return {
            "bundle": str(self.folder),
            "rootfs": str(self.root),
            "nodes": [*common["deviceNodes"], *own["deviceNodes"]],
            "mounts": mounts,
            "hooks": common["hooks"],
            "env": dict(variable.split("=", 1) for variable in environment),
            "command": [_in_path(command[0]), *command[1:]],
        }

    def _own_mounts(self) -> Iterable[Mount]:
        yield from self.shares
        yield Mount(_PYTHON, str(self.kit.python), ("ro", "nosuid", "nodev", "bind"))

    def cached(self) -> str:
        """Return what the loader's cache of the image lists."""
        cache = self.root / "etc/ld.so.cache"
        if not cache.exists():
            return ""
        command = [str(self.kit.programs / "ldconfig"), "-p", "-C", str(cache)]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def was_refused(done: subprocess.CompletedProcess[str]) -> bool:
    """Return whether a hook refused the container."""
    return done.returncode == REFUSED


def _plain(mount: Mount) -> dict[str, Any]:
    return {"containerPath": mount.path, "hostPath": mount.host, "options": list(mount.options)}


def _in_path(program: str) -> str:
    return program if "/" in program else os.path.join("/usr/bin", program)  # noqa: PTH118
