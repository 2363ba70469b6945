"""Device nodes of MIG capabilities: without them no container can open a MIG device."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path

from divvy.agent.regular_file import read_regular_file


def cap_minors(root: Path, gpu_minor: int) -> dict[str, int]:
    """Return the device minors of one GPU's capabilities by access path ("gi1/ci0/access").

    From ``proc/driver/nvidia-caps/mig-minors``, which has those of every instance there could be.
    """
    try:
        content = read_regular_file(root / "proc/driver/nvidia-caps/mig-minors")
    except OSError:
        return {}
    matches = re.findall(rb"^gpu%d/(\S+) (\d+)$" % gpu_minor, content, re.MULTILINE)
    return {path.decode(errors="replace"): int(minor) for path, minor in matches}


def make_cap_nodes(root: Path, minors: Iterable[int]) -> list[str]:
    """Create ``dev/nvidia-caps/nvidia-cap<N>`` nodes that are missing or wrong; return their names.

    The driver announces the major in ``proc/devices``; without the nodes no container can open a
    MIG device. Raises OSError.
    """
    wanted = sorted(minors)
    major = _caps_major(root) if wanted else None
    if major is None:
        return []
    folder = root / "dev/nvidia-caps"
    created = []
    for minor in wanted:
        node = folder / f"nvidia-cap{minor}"
        device = os.makedev(major, minor)
        if _is_device(node, device):
            continue
        folder.mkdir(mode=0o755, exist_ok=True)
        # The major may be another since the driver was loaded again.
        node.unlink(missing_ok=True)
        os.mknod(node, stat.S_IFCHR | 0o444, device)
        node.chmod(0o444)
        created.append(node.name)
    return created


def _is_device(node: Path, device: int) -> bool:
    try:
        status = node.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == device


def _caps_major(root: Path) -> int | None:
    for devices in (root / "proc/devices", Path("/proc/devices")):
        try:
            match = re.search(rb"^\s*(\d+) nvidia-caps$", read_regular_file(devices), re.MULTILINE)
        except OSError:
            continue
        if match is not None:
            return int(match.group(1))
    return None
