"""What a container gets with a device: environment, device nodes, mounts; as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import PurePosixPath

from divvy.agent.driver_files import DriverFiles
from divvy.agent.hardware import Gpu, Snapshot

_READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKETS = ("nosuid", "nodev", "noexec", "rbind", "rprivate")
# The folders that a loader searches without a cache: Debian's and Ubuntu's, everybody else's.
_SEARCHED = ("usr/lib/x86_64-linux-gnu", "usr/lib64")


@dataclass(frozen=True)
class Node:
    """A device node: where the container sees it, where it is on the host, rights on it."""

    path: str
    host: str
    permissions: str = "rw"


@dataclass(frozen=True)
class Mount:
    """A bind mount from the host."""

    path: str
    host: str
    options: tuple[str, ...]

    @property
    def read_only(self) -> bool:
        """Tell whether the container may only read it."""
        return "ro" in self.options


@dataclass(frozen=True)
class Edits:
    """Changes of one container."""

    env: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    mounts: tuple[Mount, ...] = ()


def common_edits(files: DriverFiles, root: PurePosixPath) -> Edits:
    """Return what every GPU's container gets; ``root`` is the driver root as the host sees it."""
    mounts = [
        Mount(f"/{files.library_folder}/{name}", str(root / path), _READ_ONLY)
        for path, names in files.libraries
        for name in names
    ]
    mounts += [Mount(f"/{path}", str(root / path), _READ_ONLY) for path in files.programs]
    mounts += [Mount(f"/{path}", str(root / path), _SOCKETS) for path in files.socket_folders]
    return Edits(
        # Tells NVIDIA's own runtime, where it is the default, to inject nothing by itself.
        env={"NVIDIA_VISIBLE_DEVICES": "void"},
        nodes=tuple(_node(root, path) for path in files.control_nodes),
        mounts=tuple(mounts),
    )


def device_edits(snapshot: Snapshot, root: PurePosixPath) -> dict[str, Edits]:
    """Return UUID → the device nodes of each GPU and MIG device."""
    found = {}
    for gpu in snapshot.gpus:
        node = _node(root, f"dev/nvidia{gpu.minor}")
        found[gpu.uuid] = Edits(nodes=(node,))
        found.update(_mig_edits(gpu, node, root))
    return found


def file_edits(paths: Iterable[str]) -> Edits:
    """Return device files of other vendors, at the same place in the container."""
    return Edits(nodes=tuple(Node(path, path) for path in paths))


def without_cdi(common: Edits, devices: Iterable[Edits], library_folder: str) -> Edits:
    """Return all edits of a container whose runtime has no CDI, and so runs no hook.

    Nothing refreshes the loader's cache then: the driver's libraries are mounted in both
    folders that loaders search without one.
    """
    folders = dict.fromkeys((library_folder, *_SEARCHED))
    mounts: list[Mount] = []
    for mount in common.mounts:
        name = mount.path.removeprefix(f"/{library_folder}/")
        if name == mount.path:
            mounts.append(mount)
        else:
            mounts += [replace(mount, path=f"/{folder}/{name}") for folder in folders]
    nodes = chain(common.nodes, *(device.nodes for device in devices))
    return Edits(common.env, tuple(dict.fromkeys(nodes)), tuple(mounts))


def _mig_edits(gpu: Gpu, node: Node, root: PurePosixPath) -> Iterable[tuple[str, Edits]]:
    for instance in gpu.instances:
        if instance.uuid is None or instance.gi_cap is None or instance.ci_cap is None:
            continue
        caps = (
            _node(root, f"dev/nvidia-caps/nvidia-cap{minor}", permissions="r")
            for minor in (instance.gi_cap, instance.ci_cap)
        )
        yield instance.uuid, Edits(nodes=(node, *caps))


def _node(root: PurePosixPath, path: str, permissions: str = "rw") -> Node:
    return Node(f"/{path}", str(root / path), permissions)
