"""Finds the host's runtime process: by no name, and by nothing that a container can make.

A container's process can have any name, and a program at any path of its own mount namespace.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from divvy.agent.host_path import HostFailed, Step, resolve, unsafe_step

_NAMESPACES = ("mnt", "pid")
_SO_PEERPIDFD = 77
_PEERCRED = struct.Struct("3i")
_DELETED = " (deleted)"


@dataclass(frozen=True)
class ProcessFacts:
    """What is known of a process; ``way`` leads to its program inside the host's root."""

    namespaces: tuple[str, ...]
    program: str
    way: tuple[Step, ...]
    same_file: bool


def rejection(facts: ProcessFacts, host_namespaces: tuple[str, ...]) -> str | None:
    """Return why a process is not taken for one of the host's, None if it is."""
    for name, own, hosts in zip(_NAMESPACES, facts.namespaces, host_namespaces, strict=True):
        if own != hosts:
            return f"it is not in the host's {name} namespace, as a container's process is not"
    if facts.program.endswith(_DELETED):
        return f"{facts.program.removesuffix(_DELETED)} was replaced since it started: restart it"
    if not facts.same_file:
        return f"it does not run the host's {facts.program}"
    if not stat.S_ISREG(facts.way[-1].mode):
        return f"{facts.program} is not a regular file"
    return unsafe_step(facts.way)


@dataclass(frozen=True)
class HostProcess:
    """A process that was found to be the host's; the handle cannot mean a later one."""

    pid: int
    handle: int
    program: str
    command: tuple[str, ...]

    def running(self) -> bool:
        """Return whether the process still runs."""
        waiting = select.poll()
        waiting.register(self.handle, select.POLLIN)
        return not waiting.poll(0)


@contextmanager
def host_process(root: Path, pid: int, handle: int | None = None) -> Iterator[HostProcess]:
    """Give a process of the host; raises HostFailed with the reason where it is not to be trusted.

    ``handle`` is a pidfd of it, where there is one already; it is closed in the end.
    """
    try:
        handle = os.pidfd_open(pid) if handle is None else handle
    except OSError as error:
        raise HostFailed(f"process {pid}: {error.strerror}") from error
    try:
        try:
            process = _examined(root, pid, handle)
        except OSError as error:
            raise HostFailed(f"process {pid} cannot be looked at: {error}") from error
        # What was read is about this process only if it has not ended meanwhile.
        if not process.running():
            raise HostFailed(f"process {pid} has ended")
        yield process
    finally:
        os.close(handle)


@contextmanager
def listening_process(root: Path, path: str) -> Iterator[HostProcess]:
    """Give the process of the host that listens at a Unix socket; raises HostFailed."""
    with connect(root, path) as client:
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEERCRED.size)
        handle = _peer_handle(client)
    pid = int(_PEERCRED.unpack(credentials)[0])
    with host_process(root, pid, handle) as process:
        yield process


@contextmanager
def connect(root: Path, path: str) -> Iterator[socket.socket]:
    """Connect to a Unix socket of the host's root user; raises HostFailed."""
    try:
        with resolve(root, path) as place:
            reason = unsafe_step(place.steps)
            if reason is not None:
                raise HostFailed(f"{path} is not used: {reason}")
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(5)
                client.connect(f"/proc/self/fd/{place.descriptor}")
                yield client
    except OSError as error:
        raise HostFailed(f"nothing answers at {path}: {error.strerror or error}") from error


def trusted_program(root: Path, path: str) -> str:
    """Return a program's path on the host without links; raises HostFailed."""
    try:
        with resolve(root, path) as place:
            reason = unsafe_step(place.steps)
            if reason is None and not (stat.S_ISREG(place.mode) and place.mode & 0o100):
                reason = "it is not a program"
            program = place.path
    except OSError as error:
        raise HostFailed(f"{path} cannot be run: {error.strerror}") from error
    if reason is not None:
        raise HostFailed(f"{path} is not run: {reason}")
    return program


def _examined(root: Path, pid: int, handle: int) -> HostProcess:
    folder = Path("/proc") / str(pid)
    program = str((folder / "exe").readlink())
    try:
        with resolve(root, program) as place:
            way = place.steps
            same = os.path.samestat(os.fstat(place.descriptor), (folder / "exe").stat())
    except (FileNotFoundError, NotADirectoryError):
        way, same = (), False
    reason = rejection(
        ProcessFacts(_namespaces(pid), program, way, same),
        _namespaces(1),
    )
    if reason is not None:
        raise HostFailed(f"process {pid} is not the host's container runtime: {reason}")
    command = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
    return HostProcess(pid, handle, program, tuple(command))


def _peer_handle(client: socket.socket) -> int | None:
    """Return a pidfd of the process that listens, None before Linux 6.5."""
    try:
        option = client.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, struct.calcsize("i"))
    except OSError:
        return None
    return int(struct.unpack("i", option)[0])


def _namespaces(pid: int) -> tuple[str, ...]:
    return tuple(str(Path(f"/proc/{pid}/ns/{name}").readlink()) for name in _NAMESPACES)
