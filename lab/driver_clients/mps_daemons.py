"""A control daemon of MPS and its driver, as a test starts, asks and uses them."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.driver_clients.driver_root import HOLDER, VERSION, DriverRoot, eventually

NOBODY = 65534


@dataclass
class Mps:
    """A control daemon and its driver."""

    driver: DriverRoot
    folder: Path
    daemon: subprocess.Popen[str]
    environment: dict[str, str]

    @property
    def pipes(self) -> Path:
        return self.folder / "pipe"

    @property
    def program(self) -> str:
        return str(self.driver.root / "usr/bin/nvidia-cuda-mps-control")

    def say(self, command: str, rc: int = 0, user: int | None = None) -> str:
        """Type a command at the prompt of version 2."""
        return self._run([self.program], f"{command}\n", rc, user)

    def run(self, command: str, rc: int = 0, user: int | None = None) -> str:
        """Run a command of version 3: `module verb …`."""
        return self._run([self.program, "-p", "3", *command.split()], "", rc, user)

    def _run(self, command: list[str], text: str, rc: int, user: int | None) -> str:
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=10,
            env={**os.environ, **self.environment},
            user=user,
        )
        answer = f"{command} {text}: {done.returncode} {done.stdout}{done.stderr}"
        assert done.returncode == rc, answer
        return (done.stdout + done.stderr).strip()

    def within(self, place: str) -> dict[str, str]:
        """Return the environment of a client of a server or namespace: "training/batch"."""
        return {**self.environment, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipes / place)}

    def hold(self, mib: int, place: str = "", **more: str) -> subprocess.Popen[str]:
        return self.driver.hold(mib, **self.within(place), **more)

    def hold_as_another_user(self, place: str = "") -> subprocess.Popen[str]:
        # The interpreter itself may lie where no other user may go.
        script = f"import ctypes, os; os.setuid({NOBODY})\n{HOLDER.read_text()}"
        holder = subprocess.Popen(
            [sys.executable, "-S", "-c", script, str(self.driver.library("libcuda.so.1")), "1"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.within(place)},
        )
        self.driver.processes.append(holder)
        return holder

    @property
    def server(self) -> str:
        return self.say("get_server_list")


Start = Callable[..., Mps]


@contextlib.contextmanager
def mps_daemons(binaries: Path) -> Iterator[Start]:
    """Give a function that starts a daemon: `start("-multiuser-server", gpus=2)`."""
    started: list[Mps] = []

    def make(
        *arguments: str,
        gpus: int = 1,
        visible: str = "",
        version: str = VERSION,
        **more: str,
    ) -> Mps:
        # Not below the tests' own folder, which no other user may enter.
        folder = Path(tempfile.mkdtemp(prefix="divvy-mps-"))
        folder.chmod(0o755)
        driver = DriverRoot(folder / "driver", binaries)
        driver.install("A100-SXM4-40GB", gpus, version)
        environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(folder / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(folder / "log"),
        }
        program = str(driver.root / "usr/bin/nvidia-cuda-mps-control")
        seen = {"CUDA_VISIBLE_DEVICES": visible} if visible else {}
        daemon = subprocess.Popen(
            [program, "-f", *arguments],
            env={**os.environ, **environment, **seen, **more},
            stdout=subprocess.PIPE,
            text=True,
        )
        mps = Mps(driver, folder, daemon, environment)
        started.append(mps)
        assert eventually(lambda: (mps.pipes / "nvidia-cuda-mps-control.pid").exists())
        return mps

    try:
        yield make
    finally:
        for mps in started:
            mps.daemon.kill()
            mps.daemon.communicate()
            mps.driver.stop()
            shutil.rmtree(mps.folder, ignore_errors=True)


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def ask(process: subprocess.Popen[str], word: str) -> str:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    return first_line(process)
