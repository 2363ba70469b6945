"""Which of this machine's mounts a node sees."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.cluster.node import root
from lab.cluster.paths import STATE


def test_shows_every_mount_but_the_kernels_and_the_labs(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        *("/", "/proc", "/proc/sys", "/sys/fs/cgroup", "/dev/shm", "/run", "/run/user/0"),
        *("/runner", "/devel/cache", "/system", "/srv/a\\040b", "/srv/données"),
        *(f"{STATE}", f"{STATE}/nodes/n/root", f"{STATE}-of-another"),
    ]
    lines = "".join(f"22 1 8:1 / {point} rw - ext4 /dev/sda1 rw\n" for point in points)
    monkeypatch.setattr(Path, "read_text", lambda _path: lines)
    assert [str(point) for point in root._mounts_below_root()] == [
        *("/devel/cache", "/runner", "/srv/a b", "/srv/données", "/system"),
        f"{STATE}-of-another",
    ]
