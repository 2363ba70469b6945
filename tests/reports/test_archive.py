"""The archive of a run: its bytes, and what is no archive."""

from __future__ import annotations

import gzip

import pytest

from divvy.reports.archive import (
    REPORT,
    SIGNATURE,
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


def test_the_same_files_are_the_same_bytes() -> None:
    files = {**FILES, SUMS: checksums(FILES)}
    archive = pack(files)
    assert archive == pack(dict(reversed(files.items())))
    assert unpack(archive) == files


def test_a_signature_is_of_the_checksums_and_not_among_them() -> None:
    files = {**FILES, SUMS: checksums(FILES), SIGNATURE: b"signed"}
    assert unpack(pack(files)) == files


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"\x1f\x8b",
        gzip.compress(b"no tar"),
        pack(FILES),
        pack({**FILES, SUMS: checksums({**FILES, REPORT: b"{ }"})}),
        pack({**FILES, "more": b"", SUMS: checksums(FILES)}),
        pack({**FILES, SUMS: checksums(FILES)})[:-20],
    ],
)
def test_what_is_not_what_a_run_wrote_is_refused(archive: bytes) -> None:
    with pytest.raises(DamagedArchive):
        unpack(archive)


def test_a_report_without_its_evidence_compares_as_well() -> None:
    old = document(record("passed", "a", gflops=10.0), record("passed", "b"))
    new = document(record("failed", "a", gflops=20.0), record("skipped", "b", missed="not made"))
    short = condensed(old)
    assert "log of" not in str(short)
    assert compare_reports(short, new) == compare_reports(old, new)
