"""The driver's libraries and programs below the driver root, and whether they fit its module."""

from __future__ import annotations

import stat
from pathlib import Path

from divvy.agent.host_path import HostFailed, resolve

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


def library_folder(root: Path) -> Path | None:
    """Return the folder below ``root`` that holds the driver's libraries, or None.

    It is that of the file to which links lead: the folders that a loader searches may hold links
    alone, as with Debian's packages.
    """
    library = nvml_library(root)
    return None if library is None else library.parent


def nvml_library(root: Path) -> Path | None:
    """Return the file below ``root`` that is libnvidia-ml.so.1, or None."""
    files = (file_below(root, f"{folder}/{_NVML}") for folder in _FOLDERS)
    return next((root / file for file in files if file is not None), None)


def file_below(root: Path, path: str) -> str | None:
    """Return where links lead from a path below ``root``, or None without a file.

    An absolute link, as Debian's nvidia-smi is, means a file below the host's root and not below
    ours; so does one of a folder on the way.
    """
    try:
        with resolve(root, path) as place:
            return place.path.removeprefix("/") if stat.S_ISREG(place.mode) else None
    except (FileNotFoundError, NotADirectoryError, HostFailed):
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
    library = nvml_library(root)
    if library is None:
        return {"LD_PRELOAD": ""}
    cuda = file_below(root, str(library.with_name(f"{_CUDA}.1").relative_to(root)))
    files = (library, *(() if cuda is None else (root / cuda,)))
    return {"LD_PRELOAD": ":".join(map(str, files))}


def libraries_problem(root: Path, module: str) -> str:
    """Return why no container can use the kernel module of this version, "" if nothing says so.

    Its libraries are replaced on disk by an upgrade, while the module stays until the node boots:
    programs that run have the old files open, and no further one can start.
    """
    folder = library_folder(root)
    if folder is None or not module:
        return ""
    place = f"/{folder.relative_to(root)}"
    if file_below(root, f"{place}/{_CUDA}.{module}") is not None:
        return ""
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
