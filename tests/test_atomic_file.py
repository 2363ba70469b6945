"""What a file is, and what an error names, where a disk refuses."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from divvy.atomic_file import replace_file

FSYNC = os.fsync


@pytest.mark.parametrize("refuses", ["file", "folder"])
def test_names_what_cannot_be_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refuses: str
) -> None:
    """The system names a file only where it opens one."""

    def fsync(opened: int) -> None:
        if stat.S_ISDIR(os.fstat(opened).st_mode) == (refuses == "folder"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        FSYNC(opened)

    file = tmp_path / "file"
    file.write_bytes(b"before")
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Input/output error") as raised:
        replace_file(file, b"after", 0o600)
    assert raised.value.filename == str(file if refuses == "file" else tmp_path)
    assert file.read_bytes() == (b"before" if refuses == "file" else b"after")
    assert list(tmp_path.iterdir()) == [file]
