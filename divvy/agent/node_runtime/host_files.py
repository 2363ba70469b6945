"""Files of the host: read with all that belongs to them, replaced only if unchanged meanwhile."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from divvy.agent.host_path import HostFailed, resolve
from divvy.agent.regular_file import opened_regular_file, require_regular

_RENAME_NOREPLACE, _RENAME_EXCHANGE = 1, 2
# Of the old content; the kernel or its owner makes new ones.
_OF_THE_CONTENT = ("security.ima", "security.evm")


class EditConflict(HostFailed):
    """Somebody has changed a file meanwhile; their change is in place."""


@dataclass(frozen=True)
class Attributes:
    """What a file has beside its content: owner, permissions, extended attributes.

    SELinux labels and ACLs are extended attributes.
    """

    owner: int = 0
    group: int = 0
    mode: int = 0o644
    extended: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class HostFile:
    """A file as it was read."""

    content: bytes
    attributes: Attributes = field(default_factory=Attributes)


@dataclass(frozen=True)
class HostFiles:
    """The files below a host's root."""

    root: Path

    def exists(self, path: str) -> bool:
        """Return whether a path leads to something."""
        try:
            with resolve(self.root, path):
                return True
        except (FileNotFoundError, NotADirectoryError):
            return False

    def read(self, path: str) -> HostFile | None:
        """Return a file, through links, or None; raises HostFailed if it is no regular file."""
        with _failing(path, "read"):
            try:
                with resolve(self.root, path) as place:
                    if not stat.S_ISREG(place.mode):
                        raise HostFailed(f"{path} is not a regular file")
                    descriptor = os.open(f"/proc/self/fd/{place.descriptor}", os.O_RDONLY)
            except FileNotFoundError:
                self._refuse_dangling(path)
                return None
            with os.fdopen(descriptor, "rb") as file:
                require_regular(descriptor, path)
                return HostFile(file.read(), _attributes(descriptor))

    def replace(
        self, path: str, before: HostFile | None, content: bytes, attributes: Attributes
    ) -> HostFile:
        """Put a file with this content where ``before`` was (None: nothing), atomically.

        Links stay links: what they lead to is replaced. Raises EditConflict if it is no longer
        ``before``, HostFailed if it cannot be written; the file is then as it was.
        """
        place = self._folder_of(path, make=before is None)
        with _failing(path, "replaced"), place as (folder, name):
            scratch = f".{name}.{secrets.token_hex(4)}.divvy"
            try:
                _write(folder, scratch, HostFile(content, attributes))
                written = _read(folder, scratch)
                if before is None:
                    self._put_new(path, folder, scratch, name)
                else:
                    self._exchange(path, folder, scratch, name, before)
                os.fsync(folder)
            finally:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(scratch, dir_fd=folder)
        return written

    def remove(self, path: str, before: HostFile) -> None:
        """Remove a file if it still is what it was; raises EditConflict or HostFailed."""
        with _failing(path, "removed"), self._folder_of(path, make=False) as (folder, name):
            scratch = f".{name}.{secrets.token_hex(4)}.divvy"
            try:
                _rename(folder, name, scratch, _RENAME_NOREPLACE)
            except FileNotFoundError:
                raise EditConflict(f"{path} was removed by someone else in the meantime") from None
            if not _is(folder, scratch, before):
                _rename(folder, scratch, name, _RENAME_NOREPLACE)
                raise EditConflict(f"{path} was changed by someone else in the meantime")
            os.unlink(scratch, dir_fd=folder)

    @contextlib.contextmanager
    def scratch(self, path: str, files: dict[str, str]) -> Iterator[None]:
        """Give a folder of root's alone with these files, and remove it again."""
        parent = PurePosixPath(path).parent
        with _failing(path, "made"), resolve(self.root, str(parent)) as place:
            folder = Path(f"/proc/self/fd/{place.descriptor}") / PurePosixPath(path).name
            _clear(folder)
            folder.mkdir(mode=0o700)
            try:
                for name, text in files.items():
                    (folder / name).write_text(text)
                yield
            finally:
                _clear(folder)

    @contextlib.contextmanager
    def _folder_of(self, path: str, *, make: bool) -> Iterator[tuple[int, str]]:
        """Give the folder that really has the file, as a descriptor, and its name there."""
        real = path
        if not make:
            try:
                with resolve(self.root, path) as place:
                    real = place.path
            except FileNotFoundError:
                raise EditConflict(f"{path} was removed by someone else in the meantime") from None
        parent, name = PurePosixPath(real).parent, PurePosixPath(real).name
        if make:
            self._make_folder(parent)
        with resolve(self.root, str(parent)) as place:
            folder = os.open(f"/proc/self/fd/{place.descriptor}", os.O_RDONLY | os.O_DIRECTORY)
        try:
            yield folder, name
        finally:
            os.close(folder)

    def _make_folder(self, folder: PurePosixPath) -> None:
        missing: list[str] = []
        while not self.exists(str(folder)):
            self._refuse_dangling(str(folder))
            missing.append(folder.name)
            folder = folder.parent
        for name in reversed(missing):
            with _failing(str(folder / name), "made"), resolve(self.root, str(folder)) as place:
                Path(f"/proc/self/fd/{place.descriptor}/{name}").mkdir(0o755)
            folder /= name

    def _refuse_dangling(self, path: str) -> None:
        """Raise where a path ends at a link to nothing: a new file there would replace it."""
        parent, name = PurePosixPath(path).parent, PurePosixPath(path).name
        try:
            with resolve(self.root, str(parent)) as place:
                target = Path(f"/proc/self/fd/{place.descriptor}/{name}").readlink()
        except OSError:
            return
        raise HostFailed(f"{path} is a link to {target}, which does not exist")

    def _put_new(self, path: str, folder: int, scratch: str, name: str) -> None:
        try:
            _rename(folder, scratch, name, _RENAME_NOREPLACE)
        except FileExistsError:
            raise EditConflict(f"{path} was created by someone else in the meantime") from None

    def _exchange(self, path: str, folder: int, scratch: str, name: str, before: HostFile) -> None:
        if os.stat(name, dir_fd=folder, follow_symlinks=False).st_nlink > 1:
            raise HostFailed(f"{path} has a second name (a hard link), which would keep the old")
        # Looked at after it is out of the way: whoever wrote until then has written into it.
        _rename(folder, scratch, name, _RENAME_EXCHANGE)
        if not _is(folder, scratch, before):
            _rename(folder, scratch, name, _RENAME_EXCHANGE)
            raise EditConflict(f"{path} was changed by someone else in the meantime")


@contextlib.contextmanager
def _failing(path: str, what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise HostFailed(f"{path} cannot be {what}: {error.strerror or error}") from error


def _write(folder: int, name: str, file: HostFile) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    descriptor = os.open(name, flags, 0o600, dir_fd=folder)
    with os.fdopen(descriptor, "wb") as out:
        out.write(file.content)
        out.flush()
        os.fchown(descriptor, file.attributes.owner, file.attributes.group)
        os.fchmod(descriptor, file.attributes.mode)
        for key, value in file.attributes.extended:
            os.setxattr(descriptor, key, value)
        os.fsync(descriptor)


def _read(folder: int, name: str) -> HostFile:
    with opened_regular_file(name, folder) as file:
        return HostFile(file.read(), _attributes(file.fileno()))


def _is(folder: int, name: str, before: HostFile) -> bool:
    """Return whether a file is what it was; a pipe, a link or a folder in its place is not."""
    try:
        return _read(folder, name) == before
    except OSError:
        return False


def _attributes(descriptor: int) -> Attributes:
    status = os.fstat(descriptor)
    keys = sorted(key for key in _extended(descriptor) if key not in _OF_THE_CONTENT)
    extended = tuple((key, os.getxattr(descriptor, key)) for key in keys)
    return Attributes(status.st_uid, status.st_gid, stat.S_IMODE(status.st_mode), extended)


def _extended(descriptor: int) -> list[str]:
    try:
        return os.listxattr(descriptor)
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return []
        raise


def _rename(folder: int, old: str, new: str, flags: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    if library.renameat2(folder, old.encode(), folder, new.encode(), flags):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def _clear(folder: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
