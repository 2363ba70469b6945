"""A container of a share, without a container: a root of its own with the limiter in front."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from divvy.agent.inject.share_usage import Figures, create_account, read_account
from divvy.agent.inject.time_share_page import create_page
from divvy.model.sharing import DeviceShare, limits_text
from lab.driver_clients.driver_root import DriverRoot
from lab.target import CC, PYTHON, RUN

LIMITER = Path(__file__).parents[2] / "plugin_image/limiter"
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_PROJECT = Path(__file__).parents[2]
_BEGIN = """
import ctypes as c, os, sys, time
from pathlib import Path
from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda, CudaError
cuda = Cuda(Path(sys.argv[1]))
def tried(call):
    try:
        call()
    except CudaError as error:
        return error.code
    return 0
MIB = 1 << 20
"""
_CONTEXT = "cuda.init(); cuda.context()\n"


def build_limiter(folder: Path, target: str = "all") -> Path:
    """Compile the limiter and return the folder of its libraries."""
    command = ["make", "--silent", "-C", str(LIMITER), target, f"BUILD={folder}", f"CC={CC}"]
    subprocess.run(command, check=True)
    return folder if target == "all" else folder / target


@dataclass
class Tenant:
    """A share's files and libraries below a root; programs run with them."""

    driver: DriverRoot
    root: Path
    built: Path
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def install(self, devices: Sequence[DeviceShare]) -> None:
        libraries, behind = self.root / _LIBRARIES, self.root / "usr/lib/divvy/driver"
        for folder in (libraries, behind, self.share, self.root / "usr/bin"):
            folder.mkdir(parents=True, exist_ok=True)
        for name in ("libcuda", "libnvidia-ml"):
            shutil.copy(self.built / f"{name}.so.1", libraries)
            there = self.driver.library(f"{name}.so.1").resolve()
            shutil.copy(there, behind / f"{name}-driver.so.1")
        shutil.copy(self.driver.root / "usr/bin/nvidia-smi", self.root / "usr/bin")
        for name in ("dev", "run", "proc", "etc"):
            (self.root / name).symlink_to(self.driver.root / name)
        (self.share / "limits").write_text(limits_text(devices))
        create_account(self.account)
        for device in devices:
            self._lay_page(device)

    def _lay_page(self, device: DeviceShare) -> None:
        """Lay our page where other tenants of the GPU see it, as the agent mounts it."""
        if device.page == "-":
            return
        folder = self.root.parent / "pages" / device.uuid
        folder.mkdir(parents=True, exist_ok=True)
        create_page(folder / device.page, device.sharing.weight)
        if not (self.share / device.page).exists():
            (self.share / device.page).hardlink_to(folder / device.page)
        (self.share / device.uuid).symlink_to(folder)

    @property
    def share(self) -> Path:
        return self.root / "usr/lib/divvy/share"

    @property
    def account(self) -> Path:
        return self.share / "account"

    @property
    def figures(self) -> Figures:
        return read_account(self.account)

    def library(self, name: str) -> Path:
        return self.root / _LIBRARIES / name

    def start(
        self,
        script: str,
        *arguments: str,
        context: bool = True,
        within: Sequence[str] = (),
        **environment: str,
    ) -> subprocess.Popen[str]:
        """Start Python with `cuda` at hand; it reads lines and prints them.

        ``within`` stands before the command, for example an `unshare`.
        """
        whole = _BEGIN + (_CONTEXT if context else "") + script
        process = subprocess.Popen(
            [*within, *PYTHON, "-c", whole, str(self.library("libcuda.so.1")), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
            cwd=_PROJECT,
        )
        self.processes.append(process)
        return process

    def run(self, script: str, *arguments: str, context: bool = True, **environment: str) -> str:
        """Run Python to its end and return what it prints."""
        process = self.start(script, *arguments, context=context, **environment)
        out, errors = process.communicate(timeout=60)
        assert process.returncode == 0, out + errors
        return out.strip()

    def smi(self, *arguments: str) -> str:
        done = subprocess.run(
            [*RUN, str(self.root / "usr/bin/nvidia-smi"), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=20,
        )
        return done.stdout

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.communicate()


def line(process: subprocess.Popen[str]) -> str:
    """Read what a program says next."""
    assert process.stdout is not None
    text = process.stdout.readline().strip()
    assert text or process.poll() is None, process.communicate()
    return text


def tell(process: subprocess.Popen[str], text: str = "") -> None:
    """Send a line to a program."""
    assert process.stdin is not None
    process.stdin.write(text + "\n")
    process.stdin.flush()
