"""The lab's control groups, below one directory of every hierarchy (version 1 or 2)."""

import contextlib
import errno
import time
from collections.abc import Iterator
from pathlib import Path

from lab.cluster.paths import NAME

_MOUNT = Path("/sys/fs/cgroup")
_TOP = f"divvy-{NAME}"


def node_root(name: str) -> str:
    """Return the cgroup root of a node, as kubelet's cgroupRoot wants it."""
    return f"/{_TOP}/{name}"


def node_system(name: str) -> str:
    """Return the group of a node's own programs, beside those of its pods."""
    return f"{node_root(name)}/system"


def create(group: str) -> None:
    """Create a group such as /divvy-lab/cpu-1 in every hierarchy, ready to hold processes."""
    for hierarchy in _hierarchies():
        directory = hierarchy
        for part in group.strip("/").split("/"):
            _delegate(directory)
            directory = directory / part
            directory.mkdir(exist_ok=True)
            _inherit_cpuset(directory)


def enter(group: str) -> None:
    """Move this process into a group in every hierarchy."""
    for hierarchy in _hierarchies():
        (hierarchy / group.strip("/") / "cgroup.procs").write_text("0")


def remove(group: str = f"/{_TOP}", patience: float = 10.0) -> None:
    """Remove a group, by default all of the lab's; its processes must be dead or dying."""
    deadline = time.monotonic() + patience
    for hierarchy in _hierarchies():
        directory = hierarchy / group.strip("/")
        while directory.is_dir():
            try:
                _remove_tree(directory)
            except OSError as error:
                # The kernel empties a group a little after its last process has died.
                if error.errno != errno.EBUSY or time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def _hierarchies() -> Iterator[Path]:
    if (_MOUNT / "cgroup.controllers").is_file():
        yield _MOUNT
        return
    for directory in sorted(_MOUNT.iterdir()):
        # cpu,cpuacct and the like are also reachable by links with the single names.
        if not directory.is_symlink() and (directory / "cgroup.procs").is_file():
            yield directory


def _remove_tree(directory: Path) -> None:
    for child in directory.iterdir():
        if child.is_dir():
            _remove_tree(child)
    directory.rmdir()


def _delegate(directory: Path) -> None:
    available = directory / "cgroup.controllers"
    if available.is_file():
        for controller in available.read_text().split():
            # Some controllers cannot be delegated while the parent holds processes.
            with contextlib.suppress(OSError):
                (directory / "cgroup.subtree_control").write_text(f"+{controller}")


def _inherit_cpuset(directory: Path) -> None:
    # In version 1 a new group may use no processor until it is told which.
    for name in ("cpuset.cpus", "cpuset.mems"):
        own, parent = directory / name, directory.parent / name
        if own.is_file() and (directory / "tasks").exists() and not own.read_text().strip():
            own.write_text(parent.read_text())
