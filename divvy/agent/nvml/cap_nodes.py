"""Device nodes of MIG capabilities: without them no container can open a MIG device."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path


def cap_minors(root: Path) -> dict[str, int]:
    """Read ``proc/driver/nvidia-caps/mig-minors``: access path → device minor."""
    try:
        text = (root / "proc/driver/nvidia-caps/mig-minors").read_text()
    except OSError:
        return {}
    return {path: int(minor) for path, minor in re.findall(r"^(\S+) (\d+)$", text, re.MULTILINE)}


def make_cap_nodes(root: Path) -> list[str]:
    """Create ``dev/nvidia-caps/nvidia-cap<N>`` nodes that are missing or wrong; return their names.

    The driver announces the minors in ``proc/driver/nvidia-caps/mig-minors`` and
    the major in ``proc/devices``; without the nodes no container can open a MIG
    device.
    """
    major = _caps_major(root)
    if major is None:
        return []
    minors = cap_minors(root)
    folder = root / "dev/nvidia-caps"
    created = []
    for minor in sorted(minors[access] for access in _in_use(root) if access in minors):
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
        found = node.lstat()
    except FileNotFoundError:
        return False
    return stat.S_ISCHR(found.st_mode) and found.st_rdev == device


def _in_use(root: Path) -> Iterator[str]:
    """Yield the capabilities that exist now: mig-minors has a thousand, nearly all of nothing."""
    capabilities = root / "proc/driver/nvidia/capabilities"
    for file in capabilities.glob("gpu*/mig/gi*/**/access"):
        gpu, _, *instance = file.relative_to(capabilities).parts
        yield "/".join((gpu, *instance))


def _caps_major(root: Path) -> int | None:
    for devices in (root / "proc/devices", Path("/proc/devices")):
        try:
            found = re.search(r"^\s*(\d+) nvidia-caps$", devices.read_text(), re.MULTILINE)
        except OSError:
            continue
        if found is not None:
            return int(found.group(1))
    return None
