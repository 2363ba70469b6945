"""One process at a time where two would spoil each other's work, and folders that go with one."""

import contextlib
import errno
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

# Of network file systems: NFS locks no folders.
_NO_LOCKS = (errno.EBADF, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextlib.contextmanager
def turn_at(path: Path) -> Iterator[None]:
    """Wait until no other process has its turn at an existing file or folder, and take it."""
    with _locked(path, fcntl.LOCK_EX):
        yield


@contextlib.contextmanager
def scratch_folder(parent: Path, prefix: str) -> Iterator[Path]:
    """Give a new folder in ``parent``, and remove those that killed processes have left there.

    Its lock ends with its process. ``parent`` is made where it is missing.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        with turn_at(parent):
            _remove_abandoned(parent, prefix)
            folder = Path(
                stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=parent))
            )
            stack.enter_context(_locked(folder, fcntl.LOCK_EX))
        yield folder


def put_whole(folder: Path, place: Path) -> None:
    """Rename a finished folder, unless another process was faster: what it made may be in use."""
    try:
        folder.rename(place)
    except OSError:
        if not place.is_dir():
            raise


def _remove_abandoned(parent: Path, prefix: str) -> None:
    for folder in parent.glob(f"{prefix}*"):
        at_once = fcntl.LOCK_EX | fcntl.LOCK_NB
        # In use, or gone meanwhile with the process that used it.
        with contextlib.suppress(OSError), _locked(folder, at_once) as is_locked:
            if is_locked:
                shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _locked(path: Path, operation: int) -> Iterator[bool]:
    """Lock a file or folder, and give whether its file system can do that."""
    # NFS locks only what is open for writing.
    is_writable = path.is_file() and os.access(path, os.W_OK)
    descriptor = os.open(path, os.O_RDWR if is_writable else os.O_RDONLY)
    try:
        is_locked = True
        try:
            fcntl.flock(descriptor, operation)
        except OSError as problem:
            if problem.errno not in _NO_LOCKS:
                raise
            is_locked = False
        yield is_locked
    finally:
        os.close(descriptor)
