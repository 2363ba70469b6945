"""The driver's libraries and programs below the driver root, and whether they fit its module."""

from __future__ import annotations

import os
from pathlib import Path

_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib64",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib",
    "lib64",
    # Where clouds have it, outside the loader's folders.
    "usr/local/nvidia/lib64",
)
_NVML, _CUDA = "libnvidia-ml.so.1", "libcuda.so"
_MAX_LINKS = 40  # as in Linux


def library_folder(root: Path) -> Path | None:
    """Return the folder below ``root`` that holds the driver's libraries, or None.

    It is that of the file to which links lead: the folders that a loader searches may hold links
    alone, as with Debian's packages.
    """
    for folder in _FOLDERS:
        if (library := file_below(root, f"{folder}/{_NVML}")) is not None:
            return (root / library).parent
    return None


def file_below(root: Path, path: str) -> str | None:
    """Return where links lead from a path below ``root``, or None without a file.

    An absolute link, as Debian's nvidia-smi is, means a file below the host's root and not below
    ours.
    """
    place = root / path
    for _ in range(_MAX_LINKS):
        if not place.is_symlink():
            return str(place.relative_to(root)) if place.is_file() else None
        target = place.readlink()
        place = root / target.relative_to("/") if target.is_absolute() else place.parent / target
        place = Path(os.path.normpath(place))
        if not place.is_relative_to(root):
            return None
    return None


def driver_program(root: Path, name: str) -> str | None:
    """Return where a program of the driver is below ``root``, or None.

    Beside the libraries first: where they are in a folder of their own, what /usr/bin has may be a
    script that leads there, and no container could follow it.
    """
    library = library_folder(root)
    beside = () if library is None else (str(library.parent.relative_to(root) / "bin" / name),)
    places = (file_below(root, place) for place in (*beside, f"usr/bin/{name}"))
    return next((place for place in places if place is not None), None)


def preloaded(root: Path) -> dict[str, str]:
    """Return the environment in which programs of the driver find its libraries.

    Not by LD_LIBRARY_PATH: where the driver root is a whole system, its folder has a C library too,
    which does not fit the agent's own loader.
    """
    folder = library_folder(root)
    files = () if folder is None else (folder / _NVML, folder / f"{_CUDA}.1")
    return {"LD_PRELOAD": ":".join(str(file) for file in files if file.exists())}


def nvml_library(root: Path) -> Path | None:
    """Return the absolute path of libnvidia-ml.so.1 below ``root``, or None."""
    folder = library_folder(root)
    return None if folder is None else folder / _NVML


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
