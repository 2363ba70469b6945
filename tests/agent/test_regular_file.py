"""What lies in the place of a file of the node's: a pipe, of which a read would wait for ever."""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from divvy.agent import regular_file
from divvy.agent.gpu.holders import Remembered
from divvy.agent.gpu.system_memory import has_processors, system_memory_mib
from divvy.agent.inject.limiter import laid_share
from divvy.agent.inject.share import share_name
from divvy.agent.memory.shares import _device_ids
from divvy.agent.mps.daemon import MpsDaemon
from divvy.agent.nvml.cap_nodes import cap_minors, make_cap_nodes
from divvy.agent.nvml.driver import boot_id, loaded_module
from divvy.agent.plugin.device_holders import CHECKPOINT, DeviceHolders, HoldersUnknown
from divvy.agent.regular_file import read_regular_file
from lab.cluster.paths import REPOSITORY

AGENT = REPOSITORY / "divvy/agent"
SHARE = ["GPU-0::1"]
# Functions that read other files than read_regular_file does, and what these are.
OF_THE_IMAGE = {("agent.py", "__init__"), ("inject/limiter.py", "install_limiter")}
OF_THE_IMAGE |= {("inject/hook.py", "install_hook")}
OF_THE_KERNEL = {
    ("processes.py", "find_process"),
    ("processes.py", "start_time"),
    ("mps/processes.py", "start_time"),
    ("mps/processes.py", "arguments"),
    ("mps/processes.py", "daemons"),
    ("mps/shared_memory.py", "_open_files"),
    ("memory/shares.py", "in_namespace"),
    ("node_runtime/host_process.py", "_examined"),
}


def make_device(path: Path) -> None:
    os.mknod(path, 0o20666, os.makedev(1, 5))  # /dev/zero, which has no end


def make_long(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (os.mkfifo, "not a regular file"),
        (make_device, "not a regular file"),
        (Path.mkdir, "not a regular file"),
        (make_long, "longer than 16 MiB"),
        (lambda path: path.symlink_to("/etc/hostname"), "symbolic link"),
    ],
)
def test_reads_regular_files_alone(
    tmp_path: Path, make: Callable[[Path], None], reason: str
) -> None:
    try:
        make(tmp_path / "file")
    except PermissionError:
        pytest.skip("this user can make no device")
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match=reason):
        regular_file.read_regular_file(tmp_path / "file")
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def no_memory(root: Path) -> bool:
    with pytest.raises(OSError, match="not a regular file"):
        system_memory_mib(root)
    return True


def no_limiters(root: Path) -> bool:
    unused: Any = None
    holders = DeviceHolders(unused, root, "divvy-system/divvy-agent-x", Remembered())
    with pytest.raises(HoldersUnknown, match="not a regular file"):
        holders.device_nodes()
    with pytest.raises(HoldersUnknown, match="not a regular file"):
        holders._read()
    assert not holders.without_limiter()
    assert not holders.mounted("/x")
    return holders.limiters() is None


def no_words(root: Path) -> bool:
    return MpsDaemon(root, root, root, "GPU-0", lambda: None).last_words() == "it says nothing"


def test_reads_settings_of_the_kernel() -> None:
    """Who asks for 16 MiB at once is told that there is no memory, and the boot had no name."""
    path = Path("/proc/sys/kernel/random/boot_id")
    assert read_regular_file(path) == path.read_bytes()


def owners_unknown(root: Path) -> bool:
    with pytest.raises(OSError, match="not a regular file"):
        _device_ids(root)
    return True


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("file", "read"),
    [
        ("proc/driver/nvidia/version", lambda root: loaded_module(root) is None),
        ("proc/sys/kernel/random/boot_id", lambda root: boot_id(root) == boot_id(Path("/")) != ""),
        ("proc/driver/nvidia-caps/mig-minors", lambda root: not cap_minors(root, 0)),
        ("proc/devices", lambda root: not make_cap_nodes(root, [1])),
        ("proc/meminfo", no_memory),
        ("sys/devices/system/node/node0/cpulist", lambda root: not has_processors(root, 0)),
        (CHECKPOINT, no_limiters),
        ("log/control.log", no_words),
        (f"shares/{share_name(SHARE)}/limits", lambda root: laid_share(root, SHARE, ()) is None),
        ("devices", owners_unknown),
    ],
)
def test_waits_for_no_pipe(tmp_path: Path, file: str, read: Callable[[Path], bool]) -> None:
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    os.mkfifo(tmp_path / file)
    assert read(tmp_path)


def readings(tree: ast.AST, function: str = "") -> Iterator[str]:
    """Yield the function of each call that reads a file by its name."""
    for node in ast.iter_child_nodes(tree):
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        yield from readings(node, node.name if is_function else function)
        if not isinstance(node, ast.Call):
            continue
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ast.unparse(node.func)
        modes = [mode.value for mode in node.args if isinstance(mode, ast.Constant)]
        writes = any(set(str(mode)) & set("wxa") for mode in modes)
        is_open = name == "open" and ast.unparse(of or node) != "os" and not writes
        if name in ("read_text", "read_bytes") or is_open:
            yield function


def test_reads_the_nodes_files_as_regular_ones() -> None:
    """A read that is not listed here has to be one of ``read_regular_file``."""
    direct = {
        (str(file.relative_to(AGENT)), function)
        for file in sorted(AGENT.rglob("*.py"))
        for function in readings(ast.parse(file.read_text()))
    }
    assert direct == OF_THE_IMAGE | OF_THE_KERNEL
