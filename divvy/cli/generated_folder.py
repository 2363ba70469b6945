"""Folders of generated files: written as a whole, and never over what somebody else wrote."""

from __future__ import annotations

import gzip
import hashlib
import io
import shutil
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from divvy.errors import CommandError
from divvy.model.phrases import some

_NAMED = 5
LIST = ".divvy-files"
"""The list of what was generated, in the format of sha256sum."""


class NotOurs(CommandError):
    """A folder holds what was not generated; the text names it and says what would be right."""


def write_folder(folder: Path, files: Mapping[str, str], *, force: bool = False) -> None:
    """Write the files as the folder's whole content; raises NotOurs and OSError.

    Whatever fails, the folder is as before. ``force`` overwrites generated files that
    were edited since, never files that were not generated.
    """
    check_ours(folder, force=force)
    folder = folder.resolve()
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for path, text in {**files, LIST: _list(files)}.items():
            (fresh / path).parent.mkdir(parents=True, exist_ok=True)
            (fresh / path).write_text(text, encoding="utf-8")
        fresh.chmod(0o755)
        if folder.exists():
            old = fresh.with_name(fresh.name + "-old")
            folder.rename(old)
            try:
                fresh.rename(folder)
            except OSError:
                old.rename(folder)
                raise
            shutil.rmtree(old)
        else:
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def check_ours(folder: Path, *, force: bool = False) -> None:
    """Raise NotOurs if writing to the folder would destroy somebody's work."""
    if not folder.exists():
        return
    if not folder.is_dir():
        raise NotOurs(f"{folder} is a file; name a folder")
    if Path.cwd().is_relative_to(folder.resolve()):
        raise NotOurs(f"{folder} is replaced as a whole, and you are in it: run this elsewhere")
    there = _there(folder)
    if not there:
        return
    generated = _generated(folder)
    if generated is None:
        raise NotOurs(f"{folder} is not empty and was not generated: name another folder")
    foreign = sorted(there - generated.keys() - {LIST})
    if foreign:
        raise NotOurs(
            f"{folder} has files that were not generated: {some(foreign, _NAMED)}; "
            "move it away or name another folder"
        )
    edited = sorted(
        path for path in there & generated.keys() if _digest(folder / path) != generated[path]
    )
    if edited and not force:
        raise NotOurs(
            f"{folder} was edited since it was generated: {some(edited, _NAMED)}; "
            "keep the edits elsewhere, then say --force"
        )


def differences(folder: Path, files: Mapping[str, str]) -> list[str]:
    """Return in what a folder differs from what would be generated, file by file."""
    if not folder.is_dir():
        return [f"{folder} is not there"]
    expected = {**files, LIST: _list(files)}
    lines = []
    for path in sorted(expected.keys() | _there(folder)):
        if path not in expected:
            lines.append(f"{path} would not be generated")
        elif not (folder / path).is_file():
            lines.append(f"{path} is missing")
        elif (folder / path).read_bytes() != expected[path].encode():
            lines.append(f"{path} differs")
    return lines


def archive(files: Mapping[str, str], root: str) -> bytes:
    """Return the files below a folder as .tgz; the same files give the same bytes."""
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for path, text in sorted(files.items()):
            entry = tarfile.TarInfo(f"{root}/{path}")
            entry.size, entry.mode = len(text.encode()), 0o644
            tar.addfile(entry, io.BytesIO(text.encode()))
    return packed.getvalue()


def _list(files: Mapping[str, str]) -> str:
    return "".join(
        f"{hashlib.sha256(text.encode()).hexdigest()}  {path}\n"
        for path, text in sorted(files.items())
    )


def _generated(folder: Path) -> dict[str, str] | None:
    try:
        lines = (folder / LIST).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    return {path: digest for digest, _, path in (line.partition("  ") for line in lines)}


def _there(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if not path.is_dir() or path.is_symlink()
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
