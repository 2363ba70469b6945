"""``ContainerEdits``: environment, device nodes and mounts that come with a device, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import PurePath, PurePosixPath

from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.model.sharing import DeviceShare

# "bind" and not "rbind": what is mounted below would come along, and "ro" does not reach it.
_READ_ONLY = ("ro", "nosuid", "nodev", "bind", "rprivate")
# Read-only too: a socket still answers there, and the folder is root's and every tenant's.
_SOCKETS = (*_READ_ONLY, "noexec")
_WRITABLE = ("rw", "nosuid", "nodev", "noexec", "bind", "rprivate")
# The limiter: what it stands in front of, and where it finds the driver's file and its share's.
_LIMITED = ("libcuda", "libnvidia-ml")
_DRIVER_FOLDER = "/usr/lib/divvy/driver"
_SHARE_FOLDER = "/usr/lib/divvy/share"
LIMITS = f"{_SHARE_FOLDER}/limits"


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
        """Return whether the container may only read it."""
        return "ro" in self.options


@dataclass(frozen=True)
class ContainerEdits:
    """Changes of one container."""

    env: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    mounts: tuple[Mount, ...] = ()


@dataclass(frozen=True)
class DriverFiles:
    """Paths below the driver root, each relative to it.

    ``libraries`` pairs a file with the names under which a container sees it, ``programs`` the
    path in a container with the file.
    """

    libraries: tuple[tuple[str, tuple[str, ...]], ...]
    library_folder: str
    programs: tuple[tuple[str, str], ...]
    control_nodes: tuple[str, ...]
    socket_folders: tuple[str, ...]


def common_edits(files: DriverFiles, root: PurePosixPath) -> ContainerEdits:
    """Return what every GPU's container gets; ``root`` is the driver root as the host sees it."""
    mounts = [
        Mount(f"/{files.library_folder}/{name}", str(root / path), _READ_ONLY)
        for path, names in files.libraries
        for name in names
    ]
    mounts += [Mount(f"/{path}", str(root / file), _READ_ONLY) for path, file in files.programs]
    mounts += [Mount(f"/{path}", str(root / path), _SOCKETS) for path in files.socket_folders]
    return ContainerEdits(
        # Tells NVIDIA's own runtime, where it is the default, to inject nothing by itself.
        env={"NVIDIA_VISIBLE_DEVICES": "void"},
        nodes=tuple(_node(root, path) for path in files.control_nodes),
        mounts=tuple(mounts),
    )


def device_edits(snapshot: Snapshot, root: PurePosixPath) -> dict[str, ContainerEdits]:
    """Return UUID → the device nodes of each GPU and MIG device.

    A GPU that is lost, or does not answer, has none: its minor is from an earlier look, and may
    be another GPU's now.
    """
    edits = {}
    for gpu in snapshot.gpus:
        if not gpu.present:
            continue
        node = _node(root, f"dev/nvidia{gpu.minor}")
        edits[gpu.uuid] = ContainerEdits(nodes=(node,))
        edits.update(_mig_edits(gpu, node, root))
    return edits


def file_edits(paths: Iterable[str]) -> ContainerEdits:
    """Return device files of other vendors, at the same place in the container."""
    return ContainerEdits(nodes=tuple(Node(path, path) for path in paths))


def without_hook(common: ContainerEdits, library_folder: str, machine: str) -> ContainerEdits:
    """Return what all containers get where no hook refreshes their loader's cache.

    The driver's libraries are mounted in both folders that loaders search without one: Debian's
    and Ubuntu's, which has the machine's name (as uname(2) gives it), and everybody else's.
    """
    folders = dict.fromkeys((library_folder, f"usr/lib/{machine}-linux-gnu", "usr/lib64"))
    mounts: list[Mount] = []
    for mount in common.mounts:
        name = mount.path.removeprefix(f"/{library_folder}/")
        if name == mount.path:
            mounts.append(mount)
        else:
            mounts += [replace(mount, path=f"/{folder}/{name}") for folder in folders]
    return replace(common, mounts=tuple(mounts))


def without_cdi(common: ContainerEdits, devices: Iterable[ContainerEdits]) -> ContainerEdits:
    """Return all edits of one container; ``common`` is that of containers without a hook."""
    nodes = chain(common.nodes, *(device.nodes for device in devices))
    return replace(common, nodes=tuple(dict.fromkeys(nodes)))


def together(edits: ContainerEdits, other: ContainerEdits) -> ContainerEdits:
    """Return both edits of one container."""
    nodes = tuple(dict.fromkeys((*edits.nodes, *other.nodes)))
    return ContainerEdits({**edits.env, **other.env}, nodes, (*edits.mounts, *other.mounts))


def shared_folder(path: str, host: PurePath) -> ContainerEdits:
    """Return a folder of the host in a container: to read, and to reach its sockets."""
    return ContainerEdits(mounts=(Mount(path, str(host), _SOCKETS),))


def shared_memory(host: PurePath) -> ContainerEdits:
    """Return a folder of the host as a container's /dev/shm.

    A volume that the pod itself mounts there lies above it: the kubelet names what a device plugin
    asks for first, and containerd keeps that order.
    """
    return ContainerEdits(mounts=(Mount("/dev/shm", str(host), _WRITABLE),))  # noqa: S108


def limited_edits(common: ContainerEdits, limiter: PurePosixPath) -> ContainerEdits:
    """Return what all containers of a limited share get: the limiter in front of the driver.

    The driver's own file keeps its content under another name, in a folder that no loader
    searches. Under its versioned name it would be found by ldconfig, which of two files
    with one SONAME links the later by name.
    """
    mounts: list[Mount] = []
    for mount in common.mounts:
        stem = PurePosixPath(mount.path).name.partition(".so")[0]
        if stem not in _LIMITED:
            mounts.append(mount)
        elif mount.path.endswith((".so", ".so.1")):
            mounts.append(replace(mount, host=str(limiter / f"{stem}.so.1")))
            behind = Mount(f"{_DRIVER_FOLDER}/{stem}-driver.so.1", mount.host, mount.options)
            if behind not in mounts:
                mounts.append(behind)
    return replace(common, mounts=tuple(mounts))


def limits_mount(share: PurePath) -> tuple[Mount, ...]:
    """Return the file of one share's limits, by which the hook has the driver limit it."""
    return (Mount(LIMITS, str(share / "limits"), _READ_ONLY),)


def share_mounts(
    share: PurePath, pages: PurePath, devices: Iterable[DeviceShare]
) -> tuple[Mount, ...]:
    """Return the files of one share: limits to read, account and own page to write.

    The pages of the other shares of a GPU can be read alone.
    """
    mounts = [
        *limits_mount(share),
        Mount(f"{_SHARE_FOLDER}/account", str(share / "account"), _WRITABLE),
    ]
    for device in devices:
        if device.page != "-":
            folder = pages / device.uuid
            own, all_of_gpu = f"{_SHARE_FOLDER}/{device.page}", f"{_SHARE_FOLDER}/{device.uuid}"
            mounts.append(Mount(all_of_gpu, str(folder), _READ_ONLY))
            mounts.append(Mount(own, str(folder / device.page), _WRITABLE))
    return tuple(mounts)


def _mig_edits(gpu: Gpu, node: Node, root: PurePosixPath) -> Iterable[tuple[str, ContainerEdits]]:
    for instance in gpu.instances:
        if instance.uuid is None or instance.gi_cap is None or instance.ci_cap is None:
            continue
        caps = (
            _node(root, f"dev/nvidia-caps/nvidia-cap{minor}", permissions="r")
            for minor in (instance.gi_cap, instance.ci_cap)
        )
        yield instance.uuid, ContainerEdits(nodes=(node, *caps))


def _node(root: PurePosixPath, path: str, permissions: str = "rw") -> Node:
    return Node(f"/{path}", str(root / path), permissions)
