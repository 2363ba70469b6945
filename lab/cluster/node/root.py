"""Give a node a root file system of its own: this machine's, with a private layer on top.

Whatever is written on the node, wherever, stays in the node's directory; what is mounted is
seen by the node alone and ends with it.
"""

import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

from lab.cluster.paths import STATE, STATES

# Directories with heavy use of their own, which cannot lie on an overlay (containerd's
# snapshots are overlays themselves).
_OWN = ("var/lib/containerd", "var/lib/kubelet")
# How the kernel writes spaces and the like.
_OCTAL = re.compile(r"\\([0-7]{3})")
_KERNEL = ("/proc", "/sys", "/dev", "/run")
_DRIVER_OF_HOST = ("nvidia", "nvidia-persistenced")
# What a driver's kernel module makes in /proc and /sys, and programs of NVIDIA's read there.
_OF_KERNEL_MODULE = ("proc/driver", "proc/devices", "sys/bus/pci/devices")


def enter_root(directory: Path, host_driver: bool) -> None:
    """Make the node's file system from its directory and make it this process's root."""
    root = directory / "root"
    root.mkdir(exist_ok=True)
    _overlay(Path("/"), directory, root)
    for point in _mounts_below_root():
        place = root / point.relative_to("/")
        try:
            if point.is_dir():
                _overlay(point, directory, place)
            else:
                _mount("--bind", point, place)
        except (OSError, subprocess.CalledProcessError) as error:
            # Some file systems cannot lie below an overlay; the node does without them.
            print(f"{point} is not visible on this node: {error}", file=sys.stderr)
    for name in _OWN:
        own, place = directory / name.replace("/", "-"), root / name
        own.mkdir(exist_ok=True)
        place.mkdir(parents=True, exist_ok=True)
        _mount("--bind", own, place)
    # Labs' own state, with their keys and other nodes, is none of the node's business.
    for state in STATES.glob("divvy-*"):
        _tmpfs(root / state.relative_to("/"))
    _tmpfs(root / "run")
    (root / "run/lock").mkdir()
    if host_driver:
        _bind_host_driver(root)
    _mount("--rbind", "/dev", root / "dev")
    _tmpfs(root / "dev/shm", mode="1777")
    _mount("-t", "sysfs", "sysfs", root / "sys")
    _mount("--rbind", "/sys/fs/cgroup", root / "sys/fs/cgroup")
    _mount("-t", "proc", "proc", root / "proc")
    _pivot(root)


def show_kernel_files(driver_root: Path) -> None:
    """Bind what a simulated driver has below its root to where the kernel would have it."""
    for name in _OF_KERNEL_MODULE:
        place = Path("/", name)
        # A machine without a PCI bus has no folder for it.
        if place.exists():
            _mount("--bind", driver_root / name, place)


def _overlay(lower: Path, directory: Path, target: Path) -> None:
    layer = directory / "layers" / quote(str(lower), safe="")
    (layer / "upper").mkdir(parents=True, exist_ok=True)
    (layer / "work").mkdir(exist_ok=True)
    options = f"lowerdir={lower},upperdir={layer / 'upper'},workdir={layer / 'work'}"
    _mount("-t", "overlay", "-o", options, "overlay", target)


def upper(directory: Path) -> Path:
    """Return where the node's own files of / are kept."""
    return directory / "layers" / quote("/", safe="") / "upper"


def _mounts_below_root() -> list[Path]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = {
        Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), line.split()[4])) for line in lines
    }
    hidden = (*map(Path, _KERNEL), STATE)
    return sorted(
        point
        for point in points - {Path("/")}
        if not any(point.is_relative_to(folder) for folder in hidden)
    )


def _bind_host_driver(root: Path) -> None:
    for name in _DRIVER_OF_HOST:
        if (Path("/run") / name).is_dir():
            (root / "run" / name).mkdir()
            _mount("--rbind", Path("/run") / name, root / "run" / name)


def _pivot(root: Path) -> None:
    old = root / "run/.old"
    old.mkdir()
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "run/.old"], check=True)
    os.chdir("/")
    subprocess.run(["umount", "--lazy", "/run/.old"], check=True)
    Path("/run/.old").rmdir()
    # As on a plain machine; pods' bidirectional mounts need it.
    _mount("--make-rshared", "/")


def _tmpfs(place: Path, mode: str = "0755") -> None:
    place.mkdir(parents=True, exist_ok=True)
    _mount("-t", "tmpfs", "-o", f"mode={mode}", "tmpfs", place)


def _mount(*arguments: str | Path) -> None:
    subprocess.run(["mount", *map(str, arguments)], check=True)
