"""A simulated driver of a test's own: plain processes, no lab."""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pynvml

from divvy.model.gpu_models import gpu_model
from lab.cluster.simulated_driver import install_simulated_driver
from lab.driver_clients.cuda import Cuda
from lab.target import RUN

VERSION = "550.163.01"
OTHER_VERSION = "570.133.20"
HOLDER = Path(__file__).with_name("holder.py")


@dataclass
class DriverRoot:
    """An installed driver root with its running daemon."""

    root: Path
    binaries: Path
    persist: Path | None = None
    processes: list[subprocess.Popen[str]] = field(default_factory=list)

    def install(self, model: str, count: int, version: str = VERSION) -> None:
        self.root.mkdir(exist_ok=True)
        install_simulated_driver(
            self.root,
            "test",
            [gpu_model(model)] * count,
            version,
            persist=self.persist,
            binaries=self.binaries,
            further_versions=[OTHER_VERSION],
        )

    @property
    def pid(self) -> int:
        return int((self.root / "run/divvy-simd.pid").read_text())

    def library(self, name: str) -> Path:
        return self.root / "usr/lib/x86_64-linux-gnu" / name

    def nvml(self) -> ctypes.CDLL:
        """Make pynvml use this root's library and initialise it."""
        # The file itself: the loader would take the link for the library it already has.
        library = ctypes.CDLL(str(self.library("libnvidia-ml.so.1").resolve()))
        pynvml.nvmlLib = library
        pynvml._nvmlGetFunctionPointer_cache.clear()
        pynvml.nvmlInit()
        return library

    def cuda(self) -> Cuda:
        return Cuda(self.library("libcuda.so.1"))

    def smi(self, *arguments: str, rc: int = 0) -> str:
        return self._run("nvidia-smi", arguments, rc, RUN)

    def sim(self, *arguments: str, rc: int = 0) -> str:
        return self._run("divvy-sim", arguments, rc)

    def _run(self, name: str, arguments: Sequence[str], rc: int, runner: Sequence[str] = ()) -> str:
        command = [*runner, str(self.root / "usr/bin" / name), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
        assert done.returncode == rc, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def hold(self, mib: int, **environment: str) -> subprocess.Popen[str]:
        """Start a process that holds memory; its first line of output says how it went."""
        holder = subprocess.Popen(
            [sys.executable, "-S", str(HOLDER), str(self.library("libcuda.so.1")), str(mib)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )
        self.processes.append(holder)
        return holder

    def used_mib(self) -> list[int]:
        """Return what is allocated on each GPU beyond the driver's reserve."""
        text = self.smi("--query-gpu=memory.used", "--format=csv,noheader,nounits")
        return [int(line) for line in text.split()]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
        try:
            os.kill(self.pid, signal.SIGTERM)
        except (FileNotFoundError, ProcessLookupError):
            return
        eventually(lambda: not runs(self.pid), 2)


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def eventually(condition, seconds: float = 5.0) -> bool:  # type: ignore[no-untyped-def]
    """Return whether a condition comes true within a time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True
