"""The hook over root file systems, volumes and neighbours made to lead it outside."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from divvy.image.build import compile_hook
from tests.agent.inject.bundle import (
    BUILD,
    C_SOURCES,
    CONF,
    FOLDER,
    SOURCE,
    Container,
    administrator,
)

Trap = Callable[[Path, Path], None]


def _up(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "etc/ld.so.conf.d")
    (root / "etc/ld.so.conf.d").symlink_to("../../../../.." + str(outside))


def _absolute(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "etc")
    (root / "etc").symlink_to(outside)


def _by_process(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "etc")
    (root / "etc").symlink_to(f"/proc/1/root{outside}")


def _by_itself(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "etc/ld.so.conf.d")
    (root / "etc/ld.so.conf.d").symlink_to(f"/proc/self/cwd{outside}")


def _cache(root: Path, outside: Path) -> None:
    (root / "etc/ld.so.cache").symlink_to(outside / "cache")
    (root / "etc/ld.so.cache~").symlink_to(outside / "cache")


def _scratch(root: Path, outside: Path) -> None:
    (root / "etc/ld.so.conf.d/.00-divvy.conf.new").symlink_to(outside / "conf")
    (root / CONF[1:]).symlink_to(outside / "conf")


def _no_proc(root: Path, outside: Path) -> None:
    (root / "proc").rmdir()
    (root / "proc").symlink_to(outside)


def _libraries(root: Path, outside: Path) -> None:
    shutil.rmtree(root / "opt/driver")
    (root / "opt/driver").symlink_to(outside)


@administrator
@pytest.mark.parametrize(
    "trap", [_up, _absolute, _by_process, _by_itself, _cache, _scratch, _no_proc, _libraries]
)
def test_follows_no_link_of_an_image_to_the_outside(
    container: Container, tmp_path: Path, trap: Trap
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    shutil.copy("/lib/x86_64-linux-gnu/libm.so.6", outside / "libm.so.1.2")
    for name in ("cache", "conf"):
        (outside / name).write_text("untouched")
    (outside / "ld.so.conf").write_text("untouched")
    before = {path.name: path.read_bytes() for path in outside.iterdir()}
    trap(container.root, outside)
    done = container.call()
    assert {path.name: path.read_bytes() for path in outside.iterdir()} == before
    assert done.returncode in (0, 1)
    assert "Sanitizer" not in done.stderr


@administrator
def test_confines_an_ldconfig_that_a_stranger_controls(
    container: Container, tmp_path: Path
) -> None:
    container.ldconfig = tmp_path / "rights"
    command = ["cc", "-static", "-D_GNU_SOURCE", "-Wall", "-Werror"]
    subprocess.run([*command, "-o", container.ldconfig, C_SOURCES / "rights.c"], check=True)
    volume = tmp_path / "volume"
    volume.mkdir()
    (volume / "kept").touch()
    (container.root / "vol").mkdir()
    (container.root / "opt/driver/volume").mkdir()
    os.mknod(container.root / "device", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    library = container.root / "opt/driver/libm.so.550.1"
    container.mounted = (
        f"mount --bind {volume} {container.root}/vol; "
        f"mount --bind {volume} {container.root}/opt/driver/volume; "
        f"mount --bind /lib/x86_64-linux-gnu/libm.so.6 {library}"
    )
    done = container.call()
    assert (done.returncode, done.stderr) == (0, "")
    assert (container.root / "etc/rights").read_text().splitlines() == [
        "pid 1",
        "capabilities 2 10",  # CAP_DAC_OVERRIDE, CAP_BLOCK_SUSPEND
        "bounding 2",
        "no new privileges 1",
        "variables 0",
        "proc 3",  # ".", ".." and our own configuration
        "open 0",
        "volume 2",  # "." and "..": what the image has there, not what is mounted
        "writing a driver's file: Read-only file system",
        "opening a device: Permission denied",
        "writing to a volume beside it: Read-only file system",
        "running a program: Permission denied",
    ]


@administrator
def test_neither_reads_nor_writes_volumes(container: Container, tmp_path: Path) -> None:
    """The image leads /etc into a volume that its own user could not write."""
    volume = tmp_path / "volume"
    (volume / "etc/ld.so.conf.d").mkdir(parents=True)
    (volume / "etc/ld.so.cache").write_text("the volume's own")
    os.mkfifo(volume / "etc/ld.so.conf")
    (container.root / "vol").mkdir()
    shutil.rmtree(container.root / "etc")
    (container.root / "etc").symlink_to("/vol/etc")
    container.mounted = f"mount --bind {volume} {container.root}/vol"
    done = container.call()
    assert (done.returncode, done.stderr) == (0, "")
    assert (volume / "etc/ld.so.cache").read_text() == "the volume's own"
    assert list((volume / "etc/ld.so.conf.d").iterdir()) == []


@administrator
def test_writes_the_cache_into_the_image_below_a_volume(
    container: Container, tmp_path: Path
) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    container.mounted = f"mount --bind {volume} {container.root}/etc"
    assert container.call().returncode == 0
    assert list(volume.iterdir()) == []
    assert f"{FOLDER}/libm.so.6" in container.cached()


@administrator
def test_keeps_a_driver_folder_on_a_volume_read_only(container: Container, tmp_path: Path) -> None:
    volume = tmp_path / "volume"
    volume.mkdir()
    shutil.copy("/lib/x86_64-linux-gnu/libm.so.6", volume / "libm.so.550.1")
    container.mounted = f"mount --bind {volume} {container.root}/opt/driver"
    assert container.call().returncode == 0
    assert [path.name for path in volume.iterdir()] == ["libm.so.550.1"]


@pytest.fixture(scope="module")
def hanging(sanitized: Path) -> Path:
    """Build a hook that gives an image up soon, and is there to be looked at on busy cores."""
    quick = sanitized / "quick"
    command = ["make", "--silent", "-C", SOURCE, f"BUILD={quick}", "CFLAGS=-DDIVVY_HOOK_SECONDS=4"]
    subprocess.run(command, check=True)
    return quick / "divvy-hook"


def _hang(container: Container) -> None:
    (container.root / "etc/ld.so.conf").unlink()
    os.mkfifo(container.root / "etc/ld.so.conf")


@administrator
def test_gives_up_a_hanging_image(container: Container, hanging: Path) -> None:
    container.program = hanging
    _hang(container)
    done = container.call()
    assert done.returncode == 1
    assert "did not end within 4 s" in done.stderr


@administrator
def test_gives_up_a_hanging_image_whoever_sends_signals(
    container: Container, hanging: Path
) -> None:
    """A neighbour in the pod's PID namespace may signal the hook; each ends no more than a look."""
    container.program = hanging
    with _at_work(container) as (hook, _):
        signals = 0
        with suppress(ProcessLookupError):
            while signals < 200:  # of 20 s, five times what it waits
                os.kill(hook, signal.SIGCHLD)
                signals += 1
                time.sleep(0.1)
        assert 0 < signals < 200


@contextmanager
def _at_work(container: Container, *prefix: str) -> Iterator[tuple[int, int]]:
    """Call the hook over an image that hangs; give the process IDs of the hook and of ldconfig."""
    _hang(container)
    command = [*prefix, *container.command()]
    with subprocess.Popen(command, stdin=subprocess.PIPE, text=True) as caller:
        assert caller.stdin is not None
        caller.stdin.write(container.state)
        caller.stdin.close()
        yield (
            _process(caller.pid, b"\0--ldconfig="),
            _process(caller.pid, b"ldconfig\0-f\0"),
        )


def _process(ancestor: int, words: bytes) -> int:
    """Wait for a descendant whose command line has these words, and is no shell's."""
    for _ in range(400):
        below = [ancestor]
        for parent in below:
            with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
                children = Path(f"/proc/{parent}/task/{parent}/children")
                below += map(int, children.read_text().split())
                line = Path(f"/proc/{parent}/cmdline").read_bytes()
                if words in line and not line.startswith((b"sh\0", b"setpriv\0", b"unshare\0")):
                    return parent
        time.sleep(0.01)
    raise AssertionError(f"nothing has {words!r} on its command line")


def _with_rights(bounding: str, *command: str) -> tuple[str, ...]:
    """Return a command that root runs with some of its capabilities."""
    return ("setpriv", f"--bounding-set={bounding}", "--inh-caps=-all", *command)


# What containers have by default.
USUAL = (
    "-all,+chown,+dac_override,+fowner,+fsetid,+kill,+setgid,+setuid,+setpcap,"
    "+net_bind_service,+net_raw,+sys_chroot,+mknod,+audit_write,+setfcap"
)


def _looks_into(process: int | str, rights: str) -> list[str]:
    """Return which links somebody can follow: to a process's program and file system."""
    script = f"for each in exe root cwd; do readlink /proc/{process}/$each >&2 && echo $each; done"
    command = _with_rights(rights, "sh", "-c", script)
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.split()


@administrator
def test_hides_itself_from_a_neighbour_with_the_usual_rights(
    container: Container, hanging: Path
) -> None:
    container.program = hanging
    with _at_work(container) as processes:
        assert [_looks_into(process, USUAL) for process in processes] == [[], []]
    assert _looks_into("self", USUAL) == ["exe", "root", "cwd"]


@administrator
def test_hides_itself_from_a_neighbour_with_its_own_rights(
    container: Container, hanging: Path
) -> None:
    """CAP_SYS_PTRACE aside, against which nothing in a pod's PID namespace helps."""
    rights = "-sys_ptrace"
    container.program = hanging
    with _at_work(container, *_with_rights(rights)) as (hook, _):
        assert _looks_into(hook, rights) == []


@administrator
def test_runs_from_a_copy_that_cannot_be_written(container: Container, hanging: Path) -> None:
    container.program = hanging
    files = (container.program, container.ldconfig)
    before = [path.read_bytes() for path in files]
    with _at_work(container) as processes:
        kept = [os.open(f"/proc/{process}/exe", os.O_RDONLY) for process in processes]
    for descriptor in kept:
        assert str(Path(f"/proc/self/fd/{descriptor}").readlink()) == "/memfd:divvy (deleted)"
        again = os.open(f"/proc/self/fd/{descriptor}", os.O_RDWR)
        with pytest.raises(PermissionError):
            os.write(again, b"#!/bin/sh")
        with pytest.raises(PermissionError):
            os.ftruncate(again, 0)
        os.close(again)
        os.close(descriptor)
    assert [path.read_bytes() for path in files] == before


@administrator
def test_ends_ldconfig_with_itself(container: Container) -> None:
    container.program = compile_hook(BUILD)
    container.mounted = "trap 'sleep 2' EXIT"  # the pod's PID namespace lives on
    with _at_work(container) as (hook, ldconfig):
        os.kill(hook, signal.SIGKILL)
        time.sleep(0.5)
        status = Path(f"/proc/{ldconfig}/status")
        assert not status.exists() or "State:\tZ" in status.read_text()
