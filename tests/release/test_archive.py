"""A source archive is the same whenever and by whomever it is made."""

from __future__ import annotations

import io
import tarfile

from release.archive import normalized

EPOCH = 1_700_000_000


def archive(names: list[str], mtime: int, uid: int) -> bytes:
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w:gz") as written:
        for name in names:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.uid, member.uname = 4, mtime, uid, f"u{uid}"
            member.mode = 0o700 if name == "b" else 0o600
            written.addfile(member, io.BytesIO(b"text"))
    return output.getvalue()


def test_depends_on_the_files_alone() -> None:
    first = normalized(archive(["a", "b"], 1, 1000), EPOCH)
    assert first == normalized(archive(["b", "a"], 99, 0), EPOCH)
    with tarfile.open(fileobj=io.BytesIO(first)) as given:
        assert [(member.name, member.mode, member.mtime) for member in given] == [
            ("a", 0o644, EPOCH),
            ("b", 0o755, EPOCH),
        ]
        packed = given.extractfile("a")
        assert packed is not None
        assert packed.read() == b"text"
