"""The driver's libraries below the driver root: where they are, and whether they fit its module."""

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

_CUDA = "libcuda.so"


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


def libraries_problem(root: Path, module: str) -> str:
    """Return why no container can use the kernel module of this version, "" if nothing says so.

    Its libraries are replaced on disk by an upgrade, while the module stays until the node boots:
    programs that run have the old files open, and no further one can start.
    """
    folder = library_folder(root)
    if folder is None or not module or (folder / f"{_CUDA}.{module}").exists():
        return ""
    place = f"/{folder.relative_to(root)}"
    versions = [path.name.removeprefix(f"{_CUDA}.") for path in folder.glob(f"{_CUDA}.*.*")]
    if not versions:
        return (
            f"the driver's kernel module is {module}, and {place} has no {_CUDA}.{module}: install "
            "the libraries of that version"
        )
    return (
        f"the driver's kernel module is {module}, its libraries in {place} are "
        f"{', '.join(sorted(versions))}: reboot the node, or load the libraries' own kernel module"
    )
