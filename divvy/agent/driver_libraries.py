"""Find the driver's libraries below the driver root."""

from __future__ import annotations

from pathlib import Path

_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib",
    "lib64",
    # Debian's packages: what is in the folders above leads here by absolute links.
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
)


def library_folder(root: Path) -> Path | None:
    """Return the folder below ``root`` that holds libnvidia-ml.so.1, or None."""
    for folder in _FOLDERS:
        if (root / folder / "libnvidia-ml.so.1").exists():
            return root / folder
    return None


def nvml_library(root: Path) -> Path | None:
    """Return the absolute path of libnvidia-ml.so.1 below ``root``, or None."""
    folder = library_folder(root)
    return None if folder is None else folder / "libnvidia-ml.so.1"
