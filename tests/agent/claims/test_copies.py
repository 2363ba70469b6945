"""Copies of claims on a disk that has damaged them: what is none is left out, and replaced."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from divvy.agent.claims.copies import read_copies, write_copy
from divvy.agent.claims.record import ClaimRecord, ClaimState, HeldClaim

CLAIM = HeldClaim("uid-1", "team", "train", (), state=ClaimState.PREPARE_COMPLETED)
OTHER = HeldClaim("uid-2", "team", "web", (), state=ClaimState.PREPARE_COMPLETED)


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2 << 30)


def _of_another_claim(path: Path) -> None:
    folder = path.parent / "elsewhere"
    write_copy(folder, OTHER, ClaimRecord())
    path.write_bytes(next(folder.iterdir()).read_bytes())


def _link(path: Path) -> None:
    path.symlink_to("/dev/zero")


DAMAGE: dict[str, Callable[[Path], object]] = {
    "bytes": lambda path: path.write_bytes(b"\xff\x00" * 100),
    "half": lambda path: path.write_bytes(path.with_suffix(".whole").read_bytes()[:40]),
    "empty": lambda path: path.write_bytes(b""),
    "nested": lambda path: path.write_bytes(b"[" * 100_000),
    "pipe": os.mkfifo,
    "link": _link,
    "large": _large,
    "another claim's": _of_another_claim,
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_omits_and_replaces_a_file_that_is_no_copy_of_the_claim(tmp_path: Path, kind: str) -> None:
    write_copy(tmp_path, CLAIM, ClaimRecord())
    (path,) = tmp_path.iterdir()
    path.rename(path.with_suffix(".whole"))
    DAMAGE[kind](path)
    copies = read_copies(tmp_path)
    assert copies.record == ClaimRecord()
    assert set(copies.unreadable) == {CLAIM.uid}
    write_copy(tmp_path, CLAIM, ClaimRecord())
    assert read_copies(tmp_path).record == ClaimRecord({}, {CLAIM.uid: CLAIM})
