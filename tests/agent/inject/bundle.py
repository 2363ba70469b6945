"""A container as its runtime hands it to the hook: a bundle, and the call."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab.cluster.paths import REPOSITORY

SOURCE = REPOSITORY / "plugin_image/hook"
BUILD = REPOSITORY / "build/hook"
C_SOURCES = Path(__file__).parent / "hook"
LDCONFIG = Path("/sbin/ldconfig")
GIVEN = ("--cuda=12.4", "--driver=550.163.01", "--brand=nvidia", "--arch=8.0")
FOLDER = "/opt/driver"
CONF = "/etc/ld.so.conf.d/00-divvy.conf"
administrator = pytest.mark.skipif(
    os.geteuid() != 0, reason="a hook runs as root: it makes namespaces"
)


@dataclass
class Container:
    """A bundle whose root file system has a C library, and a driver's library to be found."""

    folder: Path
    program: Path
    environment: list[str] = field(default_factory=list)
    ldconfig: Path = LDCONFIG
    mounted: str = ":"
    """What the runtime mounts in the container, as a shell command."""
    mounts: list[dict[str, str]] = field(default_factory=list)
    arguments: tuple[str, ...] = ()

    @property
    def root(self) -> Path:
        return self.folder / "bundle/rootfs"

    def make(self) -> None:
        for name in ("etc/ld.so.conf.d", "lib64", "proc", "opt/driver", "usr/lib64"):
            (self.root / name).mkdir(parents=True)
        (self.root / "lib64/ld-linux-x86-64.so.2").symlink_to("/opt/ld.so")
        shutil.copy("/lib64/ld-linux-x86-64.so.2", self.root / "opt/ld.so")
        (self.root / "etc/ld.so.conf").write_text("include /etc/ld.so.conf.d/*.conf\n")
        shutil.copy("/lib/x86_64-linux-gnu/libm.so.6", self.root / "opt/driver/libm.so.550.1")

    def command(self, *, cache: bool = True) -> list[str]:
        """Return the call as a runtime makes it: in a PID namespace with its /proc."""
        specification = {
            "root": {"path": "rootfs"},
            "process": {"env": self.environment},
            "mounts": self.mounts,
        }
        (self.folder / "bundle/config.json").write_text(json.dumps(specification))
        command = [str(self.program), *GIVEN, *self.arguments]
        if cache:
            command += [f"--ldconfig={self.ldconfig}", f"--folder={FOLDER}"]
        proc = self.root / "proc"
        # The first process keeps the host's root, as the runtime's does: /proc/1/root is it.
        script = f'[ -L {proc} ] || mount -t proc proc {proc}; {self.mounted}; "$@"; exit $?'
        return ["unshare", "--mount", "--pid", "--fork", "sh", "-c", script, "sh", *command]

    @property
    def state(self) -> str:
        """Return what the runtime writes to the hook."""
        return json.dumps({"ociVersion": "1.2.0", "bundle": str(self.folder / "bundle")})

    def call(self, *, cache: bool = True) -> subprocess.CompletedProcess[str]:
        """Call the hook as a runtime does."""
        return subprocess.run(
            self.command(cache=cache),
            input=self.state,
            capture_output=True,
            text=True,
            check=False,
        )

    def cached(self) -> str:
        listed = [LDCONFIG, "-p", "-C", self.root / "etc/ld.so.cache"]
        return subprocess.run(listed, capture_output=True, text=True, check=True).stdout
