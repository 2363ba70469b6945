"""A tmpfs of a fixed size for files that tenants write: a tenant that fills it harms no other."""

from __future__ import annotations

import ctypes
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

_MS_NOSUID, _MS_NODEV, _MS_NOEXEC, _MS_REMOUNT = 2, 4, 8, 32
_MNT_DETACH = 2
_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Tmpfs:
    """A tmpfs as it is mounted at ``folder``.

    ``source`` is what a list of mounts calls it, ``mode`` its root's. Of no file system a tenant
    has device nodes or programs that change their user; with ``noexec`` no program at all.
    """

    folder: Path
    source: str
    mode: int
    noexec: bool = False

    def mount(self, size: int, inodes: int) -> None:
        """Mount it with so many bytes and inodes where nothing is mounted; raises OSError.

        What is mounted stays as it is: containers have it, and another would not be theirs.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        if not self.folder.is_mount():
            self._mount(0, f"size={size},nr_inodes={inodes},mode={self.mode:o}")

    def resize(self, size: int, inodes: int) -> None:
        """Give it so many bytes and inodes from now on; raises OSError."""
        self._mount(_MS_REMOUNT, f"size={size},nr_inodes={inodes}")

    def unmount(self) -> None:
        """Take it away with all that is in it, and its folder; raises OSError.

        A container that has it mounted keeps it until it ends. If somebody has unmounted it
        before, a runtime has made a plain folder for containers, which goes with their files.
        """
        while self.folder.is_mount():
            _check(_libc.umount2(os.fsencode(self.folder), _MNT_DETACH), self.folder)
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def _mount(self, flags: int, options: str) -> None:
        flags |= _MS_NOSUID | _MS_NODEV | (_MS_NOEXEC if self.noexec else 0)
        source, folder = os.fsencode(self.source), os.fsencode(self.folder)
        _check(_libc.mount(source, folder, b"tmpfs", flags, options.encode()), self.folder)


def _check(result: int, folder: Path) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(folder))
