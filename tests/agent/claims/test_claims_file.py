"""What the checkpoint of claims says is what a driver that starts now would find."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

import pytest

from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.copies import write_copy
from tests.agent.claim_values import BY_SIZE, claim, claim_record, held, offered_gpu


def _fail(*_: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("step", ["os.fchmod", "os.fsync", "divvy.atomic_file.sync_folder"])
def test_knows_what_is_on_the_disk_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """A claim that only the file had would be released by nobody, and hold its GPU forever."""
    gpu = offered_gpu(0, BY_SIZE)
    train = claim("train", held(gpu, "-share", 3000, 30))
    store = ClaimsFile(tmp_path, tmp_path, lambda: None)
    store.save(claim_record(gpu))
    with monkeypatch.context() as full:
        full.setattr(step, _fail)
        with pytest.raises(OSError, match="No space left"):
            store.put(train)
    assert store.record == ClaimsFile(tmp_path, tmp_path, lambda: None).record
    if train.uid in store.record.claims:
        store.drop(train.uid)
    assert not ClaimsFile(tmp_path, tmp_path, lambda: None).record.claims


def test_drops_no_claim_when_a_damaged_file_is_removed_between_two_looks(tmp_path: Path) -> None:
    gpu = offered_gpu(0, BY_SIZE)
    train = claim("train", held(gpu, "-share", 3000, 30))
    write_copy(tmp_path, train, claim_record(gpu, claims=(train,)))
    file = tmp_path / "claims.json"
    file.write_text("{")
    changes: list[None] = []
    store = ClaimsFile(tmp_path, tmp_path, lambda: changes.append(None))
    assert store.damage
    before = store.record
    file.unlink()
    with pytest.raises(OSError, match="has just been read again"):
        store.save(replace(before, offered={gpu.uuid: gpu}))
    assert changes
    store.save(replace(store.record, offered={gpu.uuid: gpu}))
    assert list(store.record.claims) == [train.uid]
    assert ClaimsFile(tmp_path, tmp_path, lambda: None).record == store.record


def test_reports_a_pipe_in_the_place_of_the_checkpoint(tmp_path: Path) -> None:
    """To read it would block the agent's start for good."""
    os.mkfifo(tmp_path / "claims.json")
    assert "cannot be read" in ClaimsFile(tmp_path, tmp_path, lambda: None).damage
