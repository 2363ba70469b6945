"""Whom NodeRuntime takes for the host's runtime, and what it runs."""

from __future__ import annotations

import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from divvy.agent.host_path import HostFailed, Step, unsafe_step
from divvy.agent.node_runtime.host import Host, Runtime
from divvy.agent.node_runtime.host_process import (
    HostProcess,
    ProcessFacts,
    connect,
    host_process,
    listening_process,
    rejection,
    trusted_program,
)

HOST = ("mnt:[1]", "pid:[2]")
FOLDER, FILE, LINK = stat.S_IFDIR | 0o755, stat.S_IFREG | 0o755, stat.S_IFLNK | 0o777
WAY = (
    Step("/", FOLDER, 0),
    Step("/bin", LINK, 0),
    Step("/usr", FOLDER, 0),
    Step("/usr/bin", FOLDER, 0),
    Step("/usr/bin/containerd", FILE, 0),
)
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can have files of root")


def facts(
    namespaces: tuple[str, ...] = HOST,
    program: str = "/usr/bin/containerd",
    way: tuple[Step, ...] = WAY,
    same_file: bool = True,
) -> ProcessFacts:
    return ProcessFacts(namespaces, program, way, same_file)


def with_step(at: int, **changes: int) -> tuple[Step, ...]:
    step = WAY[at]
    new = Step(step.path, changes.get("mode", step.mode), changes.get("owner", step.owner))
    return (*WAY[:at], new, *WAY[at + 1 :])


def test_accepts_the_hosts_own_runtime() -> None:
    assert rejection(facts(), HOST) is None


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (facts(namespaces=("mnt:[9]", "pid:[9]")), "not in the host's mnt namespace"),
        (facts(namespaces=("mnt:[1]", "pid:[9]")), "not in the host's pid namespace"),
        (facts(program="/usr/bin/containerd (deleted)"), "was replaced since it started"),
        (facts(same_file=False), "does not run the host's /usr/bin/containerd"),
        (facts(way=with_step(4, mode=FOLDER)), "not a regular file"),
        (facts(way=with_step(4, owner=1000)), "/usr/bin/containerd belongs to user 1000"),
        (facts(way=with_step(4, mode=stat.S_IFREG | 0o775)), "is writable by users other"),
        (facts(way=with_step(2, owner=1000)), "/usr belongs to user 1000"),
        (facts(way=with_step(3, mode=stat.S_IFDIR | 0o757)), "/usr/bin is writable by users other"),
        (facts(way=with_step(0, mode=stat.S_IFDIR | 0o1777)), "/ is writable by users other"),
        (facts(way=with_step(1, owner=1000)), "/bin belongs to user 1000"),
    ],
)
def test_rejects_other_processes_with_the_reason(facts: ProcessFacts, reason: str) -> None:
    assert reason in (rejection(facts, HOST) or "")


def test_reads_who_may_connect_from_a_sockets_permissions() -> None:
    assert unsafe_step((*WAY[:1], Step("/s", stat.S_IFSOCK | 0o666, 0))) is None
    assert unsafe_step((*WAY[:1], Step("/s", stat.S_IFSOCK | 0o666, 7))) is not None


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "host"
    (place / "usr/bin").mkdir(parents=True)
    for path in (place, place / "usr", place / "usr/bin"):
        path.chmod(0o755)
    program = place / "usr/bin/containerd"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return place


@as_root
def test_looks_up_a_program_inside_the_hosts_root(root: Path) -> None:
    (root / "bin").symlink_to("/usr/bin")
    assert trusted_program(root, "/bin/containerd") == "/usr/bin/containerd"
    (root / "usr/bin").chmod(0o777)
    with pytest.raises(HostFailed, match="is not run: /usr/bin is writable by users other"):
        trusted_program(root, "/bin/containerd")
    (root / "usr/bin").chmod(0o755)
    (root / "usr/bin/containerd").chmod(0o644)
    with pytest.raises(HostFailed, match="it is not a program"):
        trusted_program(root, "/bin/containerd")
    with pytest.raises(HostFailed, match="cannot be run: No such file"):
        trusted_program(root, "/usr/bin/sh")


@as_root
def test_runs_nothing_that_a_tenant_could_have_written(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divvy.agent.node_runtime.host._ENTER", ())
    os.chown(root / "usr/bin/containerd", 1000, 1000)
    with pytest.raises(HostFailed, match="belongs to user 1000"):
        Host(root).run("/usr/bin/containerd", "config", "dump")


@as_root
def test_requires_the_program_to_be_the_hosts_file_of_that_path(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenant's program has the path of another file of the host."""
    monkeypatch.setattr("divvy.agent.node_runtime.host_process._namespaces", lambda _pid: HOST)
    program = root / str(Path("/proc/self/exe").readlink()).lstrip("/")
    with pytest.raises(HostFailed, match="does not run the host's"), own_process(root):
        pass
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    with pytest.raises(HostFailed, match="does not run the host's"), own_process(root):
        pass


def own_process(root: Path) -> AbstractContextManager[HostProcess]:
    return host_process(root, os.getpid())


@as_root
def test_refuses_a_process_of_another_namespace(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "divvy.agent.node_runtime.host_process._namespaces",
        lambda pid: HOST if pid == 1 else ("mnt:[7]", "pid:[7]"),
    )
    with pytest.raises(HostFailed, match="not in the host's mnt namespace"), own_process(root):
        pass


def test_refuses_a_process_that_does_not_exist() -> None:
    with pytest.raises(HostFailed, match="process 4194304"), host_process(Path("/"), 4194304):
        pass


@as_root
def test_refuses_a_socket_in_a_folder_writable_by_others(root: Path) -> None:
    (root / "run").mkdir(mode=0o755)
    with socket.socket(socket.AF_UNIX) as listener:
        # Its real path is too long for an address.
        descriptor = os.open(root / "run", os.O_PATH)
        listener.bind(f"/proc/self/fd/{descriptor}/s")
        os.close(descriptor)
        listener.listen()
        with connect(root, "/run/s"):
            pass
        (root / "run").chmod(0o1777)
        with pytest.raises(HostFailed, match="not used: /run is writable"), connect(root, "/run/s"):
            pass
    (root / "run").chmod(0o755)
    with (
        pytest.raises(HostFailed, match="nothing answers at /run/s"),
        listening_process(root, "/run/s"),
    ):
        pass


@as_root
def test_ends_a_hanging_command_with_its_children(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("divvy.agent.node_runtime.host._ENTER", ("/bin/sh", "-c", '"$0"; true'))
    pid_file = tmp_path / "pid"
    program = root / "usr/bin/slow"
    program.write_text(f"#!/bin/sh\necho $$ > {pid_file}\nexec sleep 60\n")
    program.chmod(0o755)
    # Run by its path on "the host": the same here.
    monkeypatch.setattr("divvy.agent.node_runtime.host.trusted_program", lambda *_: str(program))
    began = time.monotonic()
    with pytest.raises(HostFailed, match=r"slow did not end within 0.5 s"):
        Host(root).run("/usr/bin/slow", seconds=0.5)
    assert time.monotonic() - began < 5
    deadline = time.monotonic() + 5
    child = Path("/proc") / pid_file.read_text().strip()
    while child.exists() and " Z " not in (child / "stat").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_waits_on_when_the_runtime_is_between_two_sockets(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answered a moment ago, and has removed its socket to listen again."""
    runtime = Runtime("it.service", "/run/it.sock", "/usr/bin/it", (), True)

    @contextmanager
    def listening(*_: object) -> Iterator[HostProcess]:
        yield HostProcess(7, -1, runtime.program, ())

    monkeypatch.setattr("divvy.agent.node_runtime.host.listening_process", listening)
    monkeypatch.setattr(Host, "_end", lambda *_: 6)
    with pytest.raises(HostFailed, match=r"did not come back within 0.5 s: nothing answers at"):
        Host(root).restart(runtime, 0.5)
