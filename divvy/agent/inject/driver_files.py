"""The files of the driver for a container: libraries of the loaded version, programs, nodes."""

from __future__ import annotations

import stat
from pathlib import Path

from divvy.agent.driver_root import driver_program, file_below, library_folder
from divvy.agent.inject.container_edits import DriverFiles
from divvy.agent.inject.problem import InjectionProblem

_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
# Where the user-space daemons of the driver have their sockets.
_SOCKET_FOLDERS = ("run/nvidia-persistenced", "run/nvidia-fabricmanager")
# Names that programs ask the loader for although the driver names a file by its version.
_LIBRARY_LINKS = {
    "libcuda.so": ("libcuda.so.1", "libcuda.so"),
    "libnvidia-ml.so": ("libnvidia-ml.so.1",),
    "libnvidia-ptxjitcompiler.so": ("libnvidia-ptxjitcompiler.so.1",),
    "libnvidia-nvvm.so": ("libnvidia-nvvm.so.4",),
    "libnvidia-encode.so": ("libnvidia-encode.so.1",),
    "libnvcuvid.so": ("libnvcuvid.so.1",),
    "libnvidia-opencl.so": ("libnvidia-opencl.so.1",),
    "libnvidia-cfg.so": ("libnvidia-cfg.so.1",),
}


def find_driver_files(root: Path, version: str) -> DriverFiles:
    """Look below ``root`` for the files of driver ``version``; raises InjectionProblem.

    Several versions may lie side by side; only files that carry the loaded
    version count, since a library of another version fails at its first call.
    """
    try:
        return _find(root, version)
    except OSError as error:
        raise InjectionProblem(f"the driver's files cannot be read: {error}") from error


def _find(root: Path, version: str) -> DriverFiles:
    folder = library_folder(root)
    libraries = []
    if folder is not None:
        for path in sorted(folder.glob(f"*.so.{version}")):
            stem = path.name.removesuffix(f".{version}")
            names = (path.name, *_LIBRARY_LINKS.get(stem, ()))
            place = str(path.relative_to(root))
            if (file := file_below(root, place)) is None:
                raise InjectionProblem(f"/{place} leads to no file below the driver root")
            libraries.append((file, names))
    return DriverFiles(
        libraries=tuple(libraries),
        library_folder="" if folder is None else str(folder.relative_to(root)),
        programs=tuple(
            (f"usr/bin/{name}", file)
            for name in _PROGRAMS
            if (file := driver_program(root, name)) is not None
        ),
        control_nodes=tuple(
            f"dev/{name}" for name in _CONTROL_NODES if _is_device(root / "dev" / name)
        ),
        socket_folders=tuple(name for name in _SOCKET_FOLDERS if (root / name).is_dir()),
    )


def _is_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(path.stat().st_mode)
    except OSError:
        return False
