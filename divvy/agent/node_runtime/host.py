"""The host as a privileged pod in the host's PID namespace reaches it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc

from divvy.agent.host_path import HostFailed, resolve
from divvy.agent.node_runtime.host_files import HostFiles
from divvy.agent.node_runtime.host_process import (
    HostProcess,
    host_process,
    listening_process,
    trusted_program,
)

COMMAND_SECONDS = 10.0
# systemctl's, and until the runtime answers the kubelet's questions again.
RESTART_SECONDS = 30.0
_SYSTEMCTL = "/usr/bin/systemctl"
_ENTER = ("nsenter", "--target=1", "--mount", "--uts", "--ipc", "--net", "--pid", "--")
_ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"}
# Distributions with a layout of their own: (path on the host, name).
_FOREIGN = (
    ("/var/lib/rancher/rke2", "RKE2"),
    ("/var/lib/rancher/k3s", "k3s"),
    ("/var/lib/k0s", "k0s"),
    ("/home/kubernetes/bin/gke", "GKE"),
    ("/etc/google_instance_id", "GKE"),
)


@dataclass(frozen=True)
class Runtime:
    """A container runtime of the host: its checked program, and whether systemd can restart it."""

    unit: str
    socket: str
    program: str
    command: tuple[str, ...]
    is_unit: bool


@dataclass(frozen=True)
class Host:
    """The host, as seen through its first process."""

    root: Path = Path("/proc/1/root")

    @property
    def files(self) -> HostFiles:
        """Return its files."""
        return HostFiles(self.root)

    def foreign(self) -> str | None:
        """Return the name of a distribution that manages its runtime itself."""
        return next((name for path, name in _FOREIGN if self.files.exists(path)), None)

    def runtime(self, unit: str, socket: str) -> Runtime:
        """Find a runtime by its systemd unit, else by its socket; raises HostFailed.

        What a process is called decides nothing: a container's can be called anything.
        """
        with self._process(unit, socket) as process:
            is_unit = self._unit_is_loaded(unit)
            return Runtime(unit, socket, process.program, process.command, is_unit)

    def run(self, program: str, *arguments: str, seconds: float = COMMAND_SECONDS) -> str:
        """Run a program of the host's root user in the host's namespaces; raises HostFailed."""
        command = [trusted_program(self.root, program), *arguments]
        running = subprocess.Popen(
            [*_ENTER, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            env=_ENVIRONMENT,
            # nsenter has a child of its own, which has to end with it.
            start_new_session=True,
        )
        try:
            output, errors = running.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(running.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                running.communicate(timeout=1)
            raise HostFailed(f"{' '.join(command)} did not end within {seconds:g} s") from None
        if running.returncode:
            last = " / ".join(errors.strip().splitlines()[-3:])
            raise HostFailed(f"{' '.join(command)} failed on the host: {last}")
        return output

    def restart(self, runtime: Runtime, seconds: float = RESTART_SECONDS) -> None:
        """Restart a runtime and wait until it answers as CRI; pods run on under their shims.

        Raises HostFailed, also where another program than before answers.
        """
        deadline = time.monotonic() + seconds
        before = self._end(runtime, seconds)
        last = HostFailed(f"{runtime.unit} did not come back")
        while time.monotonic() < deadline:
            try:
                self._require_answer(runtime, before)
            except HostFailed as failure:
                last = failure
                time.sleep(0.3)
            else:
                return
        raise HostFailed(f"{runtime.unit} did not come back within {seconds:g} s: {last}")

    def _end(self, runtime: Runtime, seconds: float) -> int:
        """End the running process, so that it is started again; return which it was, 0 if none."""
        before = 0
        with (
            contextlib.suppress(HostFailed),
            self._process(runtime.unit, runtime.socket) as process,
        ):
            before = process.pid
        self.run(self._systemctl(), "restart", runtime.unit, seconds=seconds)
        return before

    def _require_answer(self, runtime: Runtime, before: int) -> None:
        with listening_process(self.root, runtime.socket) as process:
            if process.pid == before:
                raise HostFailed(f"process {before} has not ended")
            if process.program != runtime.program:
                raise HostFailed(
                    f"{runtime.socket} is served by {process.program}, not by {runtime.program}"
                )
        with _dialled(self.root, runtime.socket) as version:
            try:
                version(b"", timeout=2)
            except grpc.RpcError as error:
                raise HostFailed(f"CRI does not answer: {error.details()}") from error

    @contextmanager
    def _process(self, unit: str, socket: str) -> Iterator[HostProcess]:
        if not self._unit_is_loaded(unit):
            with listening_process(self.root, socket) as process:
                yield process
            return
        pid = int(self._property(unit, "MainPID") or 0)
        if not pid:
            raise HostFailed(f"{unit} does not run on this node")
        with host_process(self.root, pid) as process:
            # The number may have changed hands since systemd said it.
            if int(self._property(unit, "MainPID") or 0) != pid:
                raise HostFailed(f"{unit} was restarted meanwhile")
            yield process

    def _unit_is_loaded(self, unit: str) -> bool:
        booted = self.files.exists("/run/systemd/system")
        return booted and self._property(unit, "LoadState") == "loaded"

    def _property(self, unit: str, name: str) -> str:
        output = self.run(self._systemctl(), "show", f"--property={name}", "--value", unit)
        return output.strip()

    def _systemctl(self) -> str:
        return _SYSTEMCTL if self.files.exists(_SYSTEMCTL) else "/bin/systemctl"


@contextmanager
def _dialled(root: Path, socket: str) -> Iterator[Callable[..., bytes]]:
    """Give CRI's Version of the runtime at a socket that was found to be the host's.

    Raises HostFailed if the socket has gone since.
    """
    try:
        with (
            resolve(root, socket) as place,
            grpc.insecure_channel(f"unix:/proc/self/fd/{place.descriptor}") as channel,
        ):
            yield channel.unary_unary("/runtime.v1.RuntimeService/Version")
    except OSError as error:
        raise HostFailed(f"nothing answers at {socket}: {error.strerror or error}") from error
