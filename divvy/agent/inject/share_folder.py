"""A tmpfs for files that tenants can write, sized to exactly what it holds.

A tenant can grow a file that it may write, and no limit counts it. So ``ShareFolder`` keeps the
files of limited shares on a tmpfs that is as large as they are. It lasts as long as containers that
have its files mounted, until the node boots; the agent may come and go.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from divvy.agent.inject import share_usage, time_share_page
from divvy.agent.inject.container_edits import Mount
from divvy.agent.inject.limiter import has_share, laid_share, remove_share, write_share
from divvy.agent.inject.problem import NotWritten
from divvy.agent.inject.tmpfs import Tmpfs
from divvy.model.sharing import DeviceShare

# What each list of a share may take: its limits, its replicas.
_LIST_BYTES = 32 << 10
# Extended attributes count as inodes do, and whoever may write a file may give it some. Those that
# stay, such as SELinux's label and a file's capabilities, take less than a quarter of its inode.
_SPARE_INODES = 16
_FILES_PER_SPARE_INODE = 4
# While a share is laid there is room, and tenants may be faster; then it is taken back from them.
_TRIES = 100


def room(devices: int, page: int) -> int:
    """Return the bytes that the files of a share take at most: each takes whole pages.

    Kernels for arm64 have pages of 4 KiB or of 64 KiB.
    """
    sizes = (_LIST_BYTES, _LIST_BYTES, share_usage.SIZE, *[time_share_page.SIZE] * devices)
    return sum(-(-size // page) * page for size in sizes)


class ShareFolder:
    """Lays the files of limited shares, and keeps them to their size.

    ``folder`` has the same path on the host.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._tmpfs = Tmpfs(folder, "divvy", 0o700)
        self._lock = threading.Lock()

    def mount(self) -> str:
        """Mount the file system if it is not mounted; return why that fails, or ""."""
        try:
            self._mount()
        except OSError as error:
            return f"the folder for limited shares cannot be mounted: {error}"
        return ""

    def lay(self, device_ids: Sequence[str], shares: Sequence[DeviceShare]) -> tuple[Mount, ...]:
        """Write the files of what a container is allocated; raises NotWritten."""
        needed = room(len(shares), mmap.PAGESIZE)
        with self._lock:
            try:
                self._mount()
                return self._written(device_ids, shares, needed)
            except OSError as error:
                raise NotWritten(f"the share's files are not written: {error}") from error
            finally:
                self._fit(0)

    def laid(
        self, device_ids: Sequence[str], shares: Sequence[DeviceShare]
    ) -> tuple[Mount, ...] | None:
        """Return the share's mounts if its files already exist and match, else None."""
        return laid_share(self.folder, device_ids, shares)

    def has(self, device_ids: Sequence[str]) -> bool:
        """Return whether a share has its files, however old: after a boot none has."""
        return has_share(self.folder, device_ids)

    def remove(self, device_ids: Sequence[str]) -> None:
        """Remove the files of a share that is not given out again."""
        remove_share(self.folder, device_ids)
        self.tidy()

    def tidy(self) -> None:
        """Take back what tenants have beyond their files, and the room of files that are gone."""
        with self._lock:
            self._cut()
            self._fit(0)

    def _written(
        self, device_ids: Sequence[str], shares: Sequence[DeviceShare], needed: int
    ) -> tuple[Mount, ...]:
        for _ in range(_TRIES):
            self._fit(needed)
            try:
                return write_share(self.folder, device_ids, shares)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                problem = error
            self._cut()
        raise problem

    def _cut(self) -> None:
        for path in self.folder.glob("shares/*/account"):
            _quietly(share_usage.cut_account, path)
        for path in self.folder.glob("pages/*/*"):
            _quietly(time_share_page.cut_page, path)

    def _mount(self) -> None:
        self._tmpfs.mount(share_usage.SIZE, _SPARE_INODES)

    def _fit(self, more: int) -> None:
        """Make the file system as large as what is in it, and so many bytes more."""
        with contextlib.suppress(OSError):  # a tenant has more now, until the next look
            if not self.folder.is_mount():
                return
            status = os.statvfs(self.folder)
            used = (status.f_blocks - status.f_bfree) * status.f_frsize
            files = 1 + sum(1 for _ in _below(self.folder))
            inodes = files + files // _FILES_PER_SPARE_INODE + _SPARE_INODES
            # size=0 would mean no limit.
            size = max(used + more, status.f_frsize)
            if (size, inodes) != (status.f_blocks * status.f_frsize, status.f_files):
                self._tmpfs.resize(size, inodes)


def _below(folder: Path) -> Iterator[str]:
    for _, folders, files in os.walk(folder):
        yield from folders
        yield from files


def _quietly(cut: Callable[[Path], None], path: Path) -> None:
    with contextlib.suppress(OSError):
        cut(path)
