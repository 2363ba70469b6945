"""A driver that is loaded again and finds other GPUs than before, or in another order."""

from __future__ import annotations

import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_GPU_MAJOR = 195
_SECONDS = 10.0


def reload_driver(root: Path, gpus: Sequence[int]) -> None:
    """Load the simulated driver below ``root`` again with these of the GPUs it had at first.

    As the kernel module does, it numbers them in the order in which it finds them: the first is
    /dev/nvidia0. MIG instances are lost, the file of modes (``--persist``) is kept.
    """
    description = root / "etc/divvy-simd.conf"
    first = root / "etc/divvy-simd.first"
    if not first.exists():
        first.write_text(description.read_text())
    head, *blocks = re.split(r"^gpu$", first.read_text(), flags=re.MULTILINE)
    # `divvy-sim driver` may have loaded another version since.
    module = (root / "proc/driver/nvidia/version").read_text()
    version = re.search(r"Kernel Module\s+(\S+)", module)
    assert version is not None
    head = re.sub(r"^driver .*$", f"driver {version[1]}", head, flags=re.MULTILINE)
    loaded = [
        re.sub(
            r"^  links .*\n", "", re.sub(r"minor \d+", f"minor {minor}", blocks[gpu]), flags=re.M
        )
        for minor, gpu in enumerate(gpus)
    ]
    command = _end_daemon(root)
    for node in (root / "dev").glob("nvidia[0-9]*"):
        node.unlink()
    for minor in range(len(gpus)):
        _make_node(root / f"dev/nvidia{minor}", minor)
    description.write_text("gpu".join([head, *loaded]))
    subprocess.run(command, check=True, capture_output=True)


def _end_daemon(root: Path) -> list[str]:
    """End the daemon and return the command that starts it again."""
    pid = int((root / "run/divvy-simd.pid").read_text())
    command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().rstrip("\0").split("\0")
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + _SECONDS
    with suppress(FileNotFoundError, ProcessLookupError):
        while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
            assert time.monotonic() < end, f"the simulated driver {pid} does not end"
            time.sleep(0.01)
    return command


def _make_node(path: Path, minor: int) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(_GPU_MAJOR, minor))
    except PermissionError:
        path.touch()
    path.chmod(0o666)
