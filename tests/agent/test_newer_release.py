"""The agent's files of a newer release, which was taken back, and files that cannot be read.

A format has a version. A newer release may add a field to any object: it is ignored. A file of
another version, or a damaged one, is kept, and the status says where.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from divvy.agent.checkpoint_file import CheckpointFile
from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.copies import read_copies, write_copy
from divvy.agent.claims.record import ClaimState
from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.agent.gpu.holders import Holder
from divvy.model import DesiredGpu, Offer
from divvy.model.claims import Claims
from divvy.model.sharing import Sharing
from tests.agent.claim_values import ON_DEMAND, claim, claim_record, held, offered_gpu
from tests.agent.devices import gpu, instance
from tests.agent.widened import widened

CLAIMS = Claims.model_validate({"shares": {"memory": {"step": "1Gi"}}, "mig": ["1g.5gb"]})
SHARING = Sharing(4, True, memory_mib=3000, action="prevent", compute="share", weight=25)
OFFER = Offer("nvidia.com/gpu.shared", "gpu", None, SHARING)
HOLDER = Holder("team/notebook", "main", "nvidia.com/gpu.shared", "GPU-1::2", "uid-1")
STATE = Checkpoint(
    labels={"pool": "a"},
    profile="p",
    assignment={0: "GPU-0", 1: "GPU-1"},
    applied={
        "GPU-0": DesiredGpu("GPU-0", 0, 0, {"1g.5gb": 7}, (), CLAIMS),
        "GPU-1": DesiredGpu("GPU-1", 1, 1, None, (OFFER,)),
    },
    gpus=(gpu(0, mig=True, instances=(instance(1, 9, 0, 4),)), gpu(1)),
    last_seen={"GPU-0": "boot"},
    faults=(("GPU-0", None, "XID 79"), ("GPU-0", 3, "XID 94")),
    changing=("GPU-1",),
    kubelet=(1, 2),
    shown=(HOLDER,),
    forgotten=(HOLDER,),
)
GPU = offered_gpu(claims=ON_DEMAND)
MIG = claim("mig", held(GPU, "-mig-1g5gb-0", 4864, has_instance=True))
PART = claim("part", held(GPU, "-share", 3000, 30), prepared=False)
RECORD = claim_record(GPU, claims=(MIG, PART))


def as_it_was(text: str) -> str:
    return text


def of_a_newer_agent(text: str) -> str:
    return json.dumps(widened(json.loads(text)))


RELEASES = pytest.mark.parametrize("release", [as_it_was, of_a_newer_agent])


@RELEASES
def test_reads_the_state(tmp_path: Path, release: Callable[[str], str]) -> None:
    CheckpointFile(tmp_path).save(STATE)
    path = tmp_path / "state.json"
    path.write_text(release(path.read_text()))
    file = CheckpointFile(tmp_path)
    assert (file.saved, file.problem) == (STATE, "")


@RELEASES
def test_reads_claims(tmp_path: Path, release: Callable[[str], str]) -> None:
    ClaimsFile(tmp_path, tmp_path / "cdi", lambda: None).save(RECORD)
    path = tmp_path / "claims.json"
    path.write_text(release(path.read_text()))
    file = ClaimsFile(tmp_path, tmp_path / "cdi", lambda: None)
    assert (file.record, file.damage) == (RECORD, "")


def copied(folder: Path) -> None:
    for held_claim in (MIG, PART):
        write_copy(folder, held_claim, RECORD)


@RELEASES
def test_reads_copies_of_claims(tmp_path: Path, release: Callable[[str], str]) -> None:
    copied(tmp_path)
    for path in tmp_path.iterdir():
        path.write_text(release(path.read_text()))
    prepared = replace(PART, state=ClaimState.PREPARE_COMPLETED)
    expected = claim_record(GPU, claims=(MIG, prepared))
    assert read_copies(tmp_path).record == expected
    file = ClaimsFile(tmp_path / "state", tmp_path, lambda: None)
    assert (file.record, file.damage) == (expected, "")


@pytest.mark.parametrize("content", ['{"version": 4}', "{", '{"version": 3}'])
def test_keeps_a_state_that_it_cannot_read(tmp_path: Path, content: str) -> None:
    path = tmp_path / "state.json"
    path.write_text(content)
    file = CheckpointFile(tmp_path)
    assert file.saved == Checkpoint()
    assert f"it is kept in {path}; remove it" in file.problem
    file.save(Checkpoint(profile="p"))
    (aside,) = tmp_path.glob("state.json.unreadable-*")
    assert aside.read_text() == content
    again = CheckpointFile(tmp_path)
    assert again.saved == Checkpoint(profile="p")
    assert f"it is kept in {aside}; remove it" in again.problem
    again.save(Checkpoint(profile="q"))
    assert aside.read_text() == content
    aside.unlink()
    assert again.problem == ""


def test_overwrites_no_state_that_it_cannot_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state.json"
    path.write_text("{")
    file = CheckpointFile(tmp_path)

    def refuse(*_: object) -> None:
        raise OSError("the file system is read-only")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="read-only"):
        file.save(Checkpoint(profile="p"))
    assert path.read_text() == "{"


@pytest.mark.parametrize("name", ["divvy.gpu-claim-uid-mig.held", "claims.json"])
def test_releases_no_claim_while_a_file_of_claims_is_unreadable(tmp_path: Path, name: str) -> None:
    copied(tmp_path)
    path = tmp_path / name
    path.write_text('{"version": 2}')
    file = ClaimsFile(tmp_path, tmp_path, lambda: None)
    assert f"{path} cannot be read (version 2" in file.damage
    assert "uid-part" in file.held.claims
    with pytest.raises(OSError, match="cannot be read"):
        file.put(replace(file.held.claims["uid-part"], state=ClaimState.PREPARE_STARTED))
    assert path.read_text() == '{"version": 2}'
    path.rename(tmp_path / "elsewhere")
    assert file.damage == ""
    assert "uid-part" in file.record.claims


def test_rewrites_the_copy_of_a_recorded_claim(tmp_path: Path) -> None:
    copied(tmp_path)
    ClaimsFile(tmp_path, tmp_path, lambda: None).save(RECORD)
    (tmp_path / "divvy.gpu-claim-uid-mig.held").write_text('{"version": 2}')
    file = ClaimsFile(tmp_path, tmp_path, lambda: None)
    assert file.damage == ""
    assert file.record == RECORD
