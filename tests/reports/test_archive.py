"""The archive of a run: its bytes, and what is no archive."""

from __future__ import annotations

import gzip
import io
import tarfile

import pytest

from divvy.reports.archive import (
    REPORT,
    SUMS,
    DamagedArchive,
    checksums,
    condensed,
    pack,
    unpack,
)
from divvy.reports.comparison import compare_reports
from tests.reports.documents import document, record

FILES = {"b.xml": b"<b/>", REPORT: b"{}"}


def test_packs_the_same_files_into_the_same_bytes() -> None:
    files = {**FILES, SUMS: checksums(FILES)}
    archive = pack(files)
    assert archive == pack(dict(reversed(files.items())))
    assert unpack(archive) == files


def test_signs_the_checksums_and_leaves_the_signature_out() -> None:
    files = {**FILES, SUMS: checksums(FILES)}
    assert unpack(pack(files)) == files


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"\x1f\x8b",
        gzip.compress(b"no tar", mtime=0),
        pack(FILES),
        pack({**FILES, SUMS: checksums({**FILES, REPORT: b"{ }"})}),
        pack({**FILES, "more": b"", SUMS: checksums(FILES)}),
        pack({**FILES, SUMS: checksums(FILES)})[:-20],
    ],
)
def test_refuses_what_no_run_wrote(archive: bytes) -> None:
    with pytest.raises(DamagedArchive):
        unpack(archive)


def _with_header(**headers: str) -> bytes:
    """Return an archive whose report has more in its header."""
    output = io.BytesIO()
    with tarfile.open(fileobj=output, mode="w", format=tarfile.PAX_FORMAT) as written:
        member = tarfile.TarInfo(REPORT)
        member.size, member.pax_headers = 2, headers
        written.addfile(member, io.BytesIO(b"{}"))
    return gzip.compress(output.getvalue())


@pytest.mark.parametrize(
    "archive",
    [
        _with_header(**{"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 50)}),
        _with_header(**{"GNU.sparse.map": "0,1", "GNU.sparse.size": str(1 << 28)}),
        _with_header(**{"GNU.sparse.size": "many"}),
        _with_header(**{"GNU.sparse.map": "0,x", "GNU.sparse.size": "2"}),
        _with_header(path="\udcff", hdrcharset="BINARY"),
        _with_header(size=str(1 << 70)),
    ],
)
def test_survives_a_header_that_would_fill_the_memory(archive: bytes) -> None:
    with pytest.raises(DamagedArchive) as refused:
        unpack(archive)
    assert "checksums" not in str(refused.value)


def test_compares_a_report_without_its_evidence_alike() -> None:
    old = document(record("passed", "a", gflops=10.0), record("passed", "b"))
    new = document(record("failed", "a", gflops=20.0), record("skipped", "b", missed="not made"))
    short = condensed(old)
    assert "log of" not in str(short)
    assert compare_reports(short, new) == compare_reports(old, new)
