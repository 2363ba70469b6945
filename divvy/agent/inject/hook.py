"""The container hook on the host: installed, verified and tried, and how it is called."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath
from typing import Literal

from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.inject.container_edits import DriverFiles
from divvy.agent.inject.installed_files import digest, install_files
from divvy.agent.inject.problem import InjectionProblem
from divvy.agent.regular_file import read_regular_file

_LDCONFIG = Path("/sbin/ldconfig")
SMI = "usr/bin/nvidia-smi"
_NVML = "libnvidia-ml.so.1"
_NAMES = ("divvy-hook", "ldconfig")


@dataclass(frozen=True)
class Hook:
    """An installed hook: paths that mean the same to this process and to the host."""

    program: Path
    ldconfig: Path


@dataclass(frozen=True)
class HookCall:
    """What the container runtime runs for each container, and at which stage of its creation.

    ``createRuntime`` is in the runtime's own namespaces, and before ``createContainer``, which is
    in the container's (OCI runtime specification, POSIX-platform hooks).
    """

    program: str
    arguments: tuple[str, ...]
    stage: Literal["createRuntime", "createContainer"] = "createContainer"


def install_hook(source: Path, folder: Path, ldconfig: Path = _LDCONFIG) -> Hook:
    """Copy the hook and the image's static ldconfig below ``folder``; raises InjectionProblem."""
    try:
        contents = dict(zip(_NAMES, (source.read_bytes(), ldconfig.read_bytes()), strict=True))
        place = install_files(folder, "hook", contents)
    except OSError as error:
        raise InjectionProblem(f"the container hook is not installed: {error}") from error
    hook = Hook(place / "divvy-hook", place / "ldconfig")
    _try(hook.program, "--check")
    _try(hook.ldconfig, "--version")
    return hook


def remove_older(folder: Path, hook: Hook) -> None:
    """Remove the hooks of earlier images but the newest, which a container may be about to run.

    One whose files are not those of its digest goes too.
    """
    others = {
        hook_folder for hook_folder in folder.glob("hook-*") if hook_folder != hook.program.parent
    }
    newest = max(
        filter(_is_intact, others),
        key=lambda hook_folder: hook_folder.stat().st_mtime,
        default=None,
    )
    for hook_folder in others - {newest}:
        shutil.rmtree(hook_folder, ignore_errors=True)


def hook_call(hook: Hook, snapshot: Snapshot, files: DriverFiles) -> HookCall:
    """Return the call for containers of this driver.

    A node whose GPUs differ is described by the weakest: the lowest compute capability,
    and no brand.
    """
    gpus = [gpu for gpu in snapshot.gpus if not gpu.lost]
    brands = {gpu.brand for gpu in gpus}
    capability = min((gpu.compute_capability for gpu in gpus), default=(0, 0))
    arguments = [
        f"--cuda={snapshot.cuda_version[0]}.{snapshot.cuda_version[1]}",
        f"--driver={snapshot.driver_version}",
        f"--brand={brands.pop() if len(brands) == 1 else 'unknown'}",
        f"--arch={capability[0]}.{capability[1]}",
    ]
    if files.libraries:
        arguments += [f"--ldconfig={hook.ldconfig}", f"--folder=/{files.library_folder}"]
    return HookCall(str(hook.program), tuple(arguments))


def limiting_call(
    hook: Hook, files: DriverFiles, root: PurePosixPath, shares: PurePath, groups: PurePath
) -> HookCall:
    """Return the call by which the driver limits the memory of a container that is about to start.

    ``root`` is the driver root as the host sees it, ``shares`` the folder of the shares' limits,
    ``groups`` that of the control groups.
    """
    libraries = {name: file for file, names in files.libraries for name in names}
    arguments = (
        f"--smi={root / dict(files.programs).get(SMI, SMI)}",
        f"--library={root / libraries.get(_NVML, _NVML)}",
        f"--shares={shares}",
        f"--groups={groups}",
    )
    return HookCall(str(hook.program), arguments, "createRuntime")


def _is_intact(place: Path) -> bool:
    try:
        return place.name == f"hook-{digest(read_regular_file(place / name) for name in _NAMES)}"
    except OSError:
        return False


def _try(program: Path, option: str) -> None:
    """Run a program as the runtime will: the file system may be mounted noexec."""
    try:
        done = subprocess.run(
            [program, option],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=10,
            check=False,
        )
    except PermissionError as error:
        where = " (mounted noexec)" if os.statvfs(program).f_flag & os.ST_NOEXEC else ""
        raise InjectionProblem(f"{program} cannot be run{where}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise InjectionProblem(f"{program} does not run: {error}") from error
    if done.returncode:
        message = done.stderr.strip().removeprefix("divvy: ") or f"exit code {done.returncode}"
        raise InjectionProblem(f"{program} does not run: {message}")
