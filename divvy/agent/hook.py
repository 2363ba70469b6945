"""The container hook on the host: installed from the image, tried, and how it is called."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from divvy.agent.driver_files import DriverFiles
from divvy.agent.hardware import Snapshot

_LDCONFIG = Path("/sbin/ldconfig")


class HookUnusable(Exception):
    """The hook cannot run on this host: why."""


@dataclass(frozen=True)
class Hook:
    """An installed hook: paths that mean the same to this process and to the host."""

    program: Path
    ldconfig: Path


@dataclass(frozen=True)
class HookCall:
    """What the container runtime runs for each container."""

    program: str
    arguments: tuple[str, ...]


def install_hook(source: Path, folder: Path, ldconfig: Path = _LDCONFIG) -> Hook:
    """Copy the hook and the image's own static ldconfig below ``folder``; raises HookUnusable.

    The path carries the content's digest: containers that are being created meanwhile go
    on with the older files, which the next installation removes.
    """
    try:
        contents = {"divvy-hook": source.read_bytes(), "ldconfig": ldconfig.read_bytes()}
        digest = hashlib.sha256(b"".join(contents.values())).hexdigest()[:16]
        place = folder / f"hook-{digest}"
        place.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            if not (place / name).exists():
                scratch = place / f".{name}.new"
                scratch.write_bytes(content)
                scratch.chmod(0o755)
                scratch.replace(place / name)
    except OSError as error:
        raise HookUnusable(f"the container hook is not installed: {error}") from error
    hook = Hook(place / "divvy-hook", place / "ldconfig")
    for program in (hook.program, hook.ldconfig):
        _try(program)
    return hook


def remove_older(folder: Path, hook: Hook, named_in: str) -> None:
    """Remove hooks of earlier images, less those that a specification still names."""
    for found in folder.glob("hook-*"):
        if found != hook.program.parent and found.name not in named_in:
            shutil.rmtree(found, ignore_errors=True)


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


def _try(program: Path) -> None:
    """Run a program as the runtime will: the file system may be mounted noexec."""
    try:
        subprocess.run(
            [program, "--version"],
            env={},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=10,
            check=True,
        )
    except PermissionError as error:
        where = " (mounted noexec)" if os.statvfs(program).f_flag & os.ST_NOEXEC else ""
        raise HookUnusable(f"{program} cannot be run{where}") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise HookUnusable(f"{program} does not run: {error}") from error
