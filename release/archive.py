"""A source archive whose bytes depend on its files alone."""

from __future__ import annotations

import gzip
import io
import tarfile


def normalized(archive: bytes, epoch: int) -> bytes:
    """Return a .tar.gz with the same files: sorted, of one time, of no user."""
    output = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as given,
        gzip.GzipFile(fileobj=output, mode="wb", filename="", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for member in sorted(given.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid = epoch, 0, 0
            member.uname = member.gname = ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            written.addfile(member, given.extractfile(member) if member.isfile() else None)
    return output.getvalue()
