"""The archive of a run: everything that its report stands on, with checksums, in one file."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import zlib
from collections.abc import Mapping
from typing import Any

SUMS = "SHA256SUMS"
REPORT = "report.json"
# Far above any report: what somebody hands on may be made to fill the memory.
_MAX_BYTES = 512 << 20


class DamagedArchive(Exception):
    """What is no archive of a run, or not what its run wrote: one sentence."""


def report_json(document: Mapping[str, Any]) -> bytes:
    """Return a report as an archive has it."""
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def checksums(files: Mapping[str, bytes]) -> bytes:
    """Return the checksums of files as `sha256sum --check` reads them."""
    lines = (
        f"{hashlib.sha256(content).hexdigest()}  {name}\n"
        for name, content in sorted(files.items())
    )
    return "".join(lines).encode()


def pack(files: Mapping[str, bytes]) -> bytes:
    """Return a .tar.gz whose bytes depend on the names and contents of the files alone."""
    output = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=output, mode="wb", filename="", mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as written,
    ):
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(content), 0o644
            written.addfile(member, io.BytesIO(content))
    return output.getvalue()


def unpack(archive: bytes) -> dict[str, bytes]:
    """Return the files of an archive, each as its checksum says; raises DamagedArchive."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(archive)) as packed:
            content = packed.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise DamagedArchive("it is too large")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as opened:
            files = {member.name: _content(opened, member) for member in opened if member.isfile()}
        summed = {name: text for name, text in files.items() if name != SUMS}
        sums = checksums(summed)
    # Numbers of a header that are none are ValueErrors of tarfile.
    except (tarfile.TarError, OSError, EOFError, zlib.error, ValueError, OverflowError) as problem:
        raise DamagedArchive(str(problem)) from None
    if files.get(SUMS) != sums:
        raise DamagedArchive("its files are not those of its checksums")
    return files


def _content(opened: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    """Return a file of an archive; one with holes may be many times as large as the archive."""
    content = None if member.issparse() else opened.extractfile(member)
    if content is None:
        raise DamagedArchive(f"{member.name!r} is not a regular file")
    return content.read()


def report_archive(document: Mapping[str, Any]) -> bytes:
    """Return an archive of a report alone."""
    files = {REPORT: report_json(document)}
    return pack({**files, SUMS: checksums(files)})


def condensed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a report without its evidence: what a comparison with it needs."""
    dropped = ("evidence", "command", "remedy", "evidenceLevel", "cncf")
    checks = [
        {key: value for key, value in check.items() if key not in dropped}
        for check in document["checks"]
    ]
    return {**document, "checks": checks}
