"""A driver that lies below no driver root: as clouds mount it into containers, or WSL has it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

PLACES = (
    "/usr/local/nvidia/lib64",
    "/usr/local/nvidia/lib",
    "/home/kubernetes/bin/nvidia/lib64",
    "/usr/lib/wsl/lib",
)


def linked_root(scratch: Path, places: Sequence[str] = PLACES) -> Path | None:
    """Make a driver root of links to the parts of such a driver; return None without a driver."""
    folders = map(Path, (*places, *filter(None, os.environ.get("LD_LIBRARY_PATH", "").split(":"))))
    folder = next(
        (candidate for candidate in folders if (candidate / "libnvidia-ml.so.1").exists()), None
    )
    if folder is None:
        return None
    root = scratch / "driver-root"
    for part in ("usr/lib", "usr/bin"):
        (root / part).mkdir(parents=True, exist_ok=True)
    parts = {"usr/lib/x86_64-linux-gnu": folder, "dev": Path("/dev"), "proc": Path("/proc")}
    program = shutil.which("nvidia-smi", path=f"{folder.parent / 'bin'}:{os.environ['PATH']}")
    if program is not None:
        parts["usr/bin/nvidia-smi"] = Path(program)
    for name, target in parts.items():
        (root / name).unlink(missing_ok=True)
        (root / name).symlink_to(target)
    return root
