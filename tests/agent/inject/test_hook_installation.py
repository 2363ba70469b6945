"""The hook on the host: installed, compared and tried; on which kernels it works."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from divvy.agent.inject.hook import Hook, install_hook, remove_older
from divvy.agent.inject.problem import InjectionProblem
from divvy.image.build import compile_hook
from lab.cluster.paths import REPOSITORY
from tests.agent.inject.bundle import (
    BUILD,
    C_SOURCES,
    Container,
    administrator,
)


@administrator
def test_refuses_an_old_kernel_with_the_reason(container: Container, sanitized: Path) -> None:
    old = sanitized / "old_kernel"
    command = ["cc", "-Wall", "-Wextra", "-Werror", "-o", old, C_SOURCES / "old_kernel.c"]
    subprocess.run(command, check=True)
    program = compile_hook(BUILD)
    checked = subprocess.run([old, program, "--check"], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (
        1,
        "divvy: this kernel has no mount_setattr: Linux 5.12 or newer is needed\n",
    )
    called = subprocess.run(
        [old, *container.command()],
        input=container.state,
        capture_output=True,
        text=True,
        check=False,
    )
    assert called.returncode == 1
    assert "Function not implemented" in called.stderr
    assert not (container.root / "etc/ld.so.cache").exists()


@administrator
def test_refuses_a_kernel_that_runs_nothing_from_memory() -> None:
    setting = Path("/proc/sys/vm/memfd_noexec")
    if not setting.exists():
        pytest.skip("the kernel has no vm.memfd_noexec")
    # It holds for the PID namespace in which it is set.
    script = f'echo 2 > {setting}; exec "$@"'
    command = ["unshare", "--pid", "--fork", "sh", "-c", script, "sh"]
    done = subprocess.run(
        [*command, compile_hook(BUILD), "--check"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (
        1,
        "divvy: the hook cannot run from memory: Permission denied\n",
    )


def test_needs_nothing_of_the_host() -> None:
    program = compile_hook(BUILD)
    described = subprocess.run(
        ["readelf", "--program-headers", program], capture_output=True, text=True, check=True
    )
    assert "INTERP" not in described.stdout


def test_installs_the_hook_once_under_its_digest(tmp_path: Path) -> None:
    program = compile_hook(BUILD)
    hook = install_hook(program, tmp_path)
    before = hook.program.stat()
    assert hook == install_hook(program, tmp_path)
    assert hook.program.stat().st_ino == before.st_ino
    assert hook.program.parent.name.startswith("hook-")
    assert hook.program.read_bytes() == program.read_bytes()


def _written(path: Path, content: bytes) -> None:
    """Write as root does, whom the mode does not hold back."""
    path.chmod(0o755)
    path.write_bytes(content)
    path.chmod(0o555)


def _tampered(path: Path) -> None:
    _written(path, b"#!/bin/sh\n")


def _empty(path: Path) -> None:
    _written(path, b"")


def _cut_off(path: Path) -> None:
    _written(path, path.read_bytes()[:4096])


def _for_everybody(path: Path) -> None:
    path.chmod(0o777)


def _link(path: Path) -> None:
    path.rename(path.with_name("moved"))
    path.symlink_to("moved")


@pytest.mark.parametrize("damage", [_tampered, _empty, _cut_off, _for_everybody, _link])
@pytest.mark.parametrize("name", ["divvy-hook", "ldconfig"])
def test_replaces_a_changed_hook_at_the_next_start(
    name: str, damage: Callable[[Path], None], tmp_path: Path
) -> None:
    program = compile_hook(BUILD)
    path = install_hook(program, tmp_path).program.with_name(name)
    content = path.read_bytes()
    damage(path)
    install_hook(program, tmp_path)
    assert path.read_bytes() == content
    assert not path.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o555


def _generation(folder: Path, number: int) -> Path:
    """Install something as the hook of an image."""
    program, ldconfig = folder / "program", folder / "ldconfig"
    program.write_text(f"#!/bin/sh\n# {number}\n")
    shutil.copy("/bin/true", ldconfig)
    program.chmod(0o755)
    place = install_hook(program, folder, ldconfig).program.parent
    os.utime(place, (number, number))
    return place


def test_keeps_the_hook_of_the_previous_image(tmp_path: Path) -> None:
    first, second, third = (_generation(tmp_path, number) for number in (1, 2, 3))
    remove_older(tmp_path, Hook(third / "divvy-hook", third / "ldconfig"))
    assert set(tmp_path.glob("hook-*")) == {second, third}
    assert not first.exists()


def test_removes_an_older_hook_that_does_not_match_its_digest(tmp_path: Path) -> None:
    first, second = (_generation(tmp_path, number) for number in (1, 2))
    (first / "ldconfig").chmod(0o755)
    (first / "ldconfig").write_text("tampered")
    remove_older(tmp_path, Hook(second / "divvy-hook", second / "ldconfig"))
    assert set(tmp_path.glob("hook-*")) == {second}


def test_reports_a_missing_or_broken_hook(tmp_path: Path) -> None:
    with pytest.raises(InjectionProblem, match="not installed"):
        install_hook(tmp_path / "nothing", tmp_path)
    (tmp_path / "rubbish").write_text("rubbish")
    with pytest.raises(InjectionProblem, match="does not run"):
        install_hook(tmp_path / "rubbish", tmp_path)
    (tmp_path / "refuses").write_text("#!/bin/sh\necho 'divvy: this kernel has no x' >&2; exit 1\n")
    with pytest.raises(InjectionProblem, match="divvy-hook does not run: this kernel has no x"):
        install_hook(tmp_path / "refuses", tmp_path)


@administrator
def test_reports_a_folder_mounted_noexec(tmp_path: Path) -> None:
    program = compile_hook(BUILD)
    script = (
        f"mount -t tmpfs -o noexec none {tmp_path} && exec .venv/bin/python -c '"
        "from pathlib import Path; from divvy.agent.inject.hook import install_hook; "
        f'install_hook(Path("{program}"), Path("{tmp_path}"))\''
    )
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "cannot be run (mounted noexec)" in done.stderr
