"""Every file that an agent saves is read by the one of another release, before it or after it.

`earlier` has the files of the release before. A later one may add a field to any object.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.checkpoint_file import CheckpointFile
from divvy.agent.claims.claims_file import ClaimsFile
from divvy.agent.claims.copies import read_copies
from divvy.agent.claims.record import ClaimRecord, ClaimState
from divvy.agent.gpu.checkpoint import Checkpoint
from divvy.agent.gpu.holders import Holder
from divvy.agent.inject.account import create_account
from divvy.agent.inject.share_folder import ShareFolder
from divvy.agent.memory.shares import ShareAccounts
from divvy.model.claims import Claims
from divvy.model.sharing import Sharing
from tests.agent.widened import widened

EARLIER = Path(__file__).parent / "earlier"


def as_it_was(text: str) -> str:
    return text


def of_a_newer_agent(text: str) -> str:
    return json.dumps(widened(json.loads(text)))


RELEASES = pytest.mark.parametrize("release", [as_it_was, of_a_newer_agent])


def laid(folder: Path, release: Callable[[str], str], *names: str) -> None:
    for path in EARLIER.iterdir():
        if path.name.endswith(names):
            (folder / path.name).write_text(release(path.read_text()))


@RELEASES
def test_reads_the_state_of_another_release(tmp_path: Path, release: Callable[[str], str]) -> None:
    laid(tmp_path, release, "state.json")
    file = CheckpointFile(tmp_path)
    saved = file.saved
    assert saved.assignment == {0: "GPU-0", 1: "GPU-1"}
    assert saved.applied["GPU-0"].mig == {"1g.5gb": 7}
    assert saved.applied["GPU-1"].offers[0].sharing == Sharing(
        4, True, memory_mib=3000, action="prevent", compute="share", weight=25
    )
    claims = Claims.model_validate({"shares": {"memory": {"step": "1Gi"}}, "mig": ["1g.5gb"]})
    assert saved.applied["GPU-2"].claims == claims
    assert [gpu.uuid for gpu in saved.gpus] == ["GPU-0", "GPU-1"]
    assert saved.gpus[0].instances[0].uuid == "MIG-7"
    assert saved.faults == (("GPU-0", None, "XID 79"), ("GPU-0", 3, "XID 94"))
    assert saved.changing == ("GPU-1",)
    assert saved.forgotten == (
        Holder("team/notebook", "main", "nvidia.com/mig-1g.5gb", "MIG-7", "uid-1"),
    )
    assert file.problem == ""


def known_claims(record: ClaimRecord) -> None:
    mig, part = record.claims["uid-mig"], record.claims["uid-part"]
    assert (mig.pods, mig.is_prepared, mig.devices[0].has_instance) == (
        (("web-0", "uid-2"),),
        True,
        True,
    )
    assert mig.devices[0].device.profile is not None
    assert mig.devices[0].device.profile.name == "1g.5gb"
    assert (part.limiter, part.devices[0].memory_mib) == ("0123456789abcdef", 3000)
    assert part.devices[0].device.share is not None
    (gpu,) = record.offered.values()
    assert len(gpu.gpu.devices) > 10


@RELEASES
def test_reads_the_claims_of_another_release(tmp_path: Path, release: Callable[[str], str]) -> None:
    laid(tmp_path, release, "claims.json")
    file = ClaimsFile(tmp_path, tmp_path / "cdi", lambda: None)
    assert file.damage == ""
    known_claims(file.record)


@RELEASES
def test_reads_the_copies_of_another_release(tmp_path: Path, release: Callable[[str], str]) -> None:
    laid(tmp_path, release, ".held")
    known_claims(read_copies(tmp_path).record)
    file = ClaimsFile(tmp_path / "state", tmp_path, lambda: None)
    assert file.damage == ""
    known_claims(file.record)


def kept(earlier: Any, now: Any) -> Any:
    """Return what of an earlier value is left in the one of now, in its own shape."""
    if isinstance(earlier, dict):
        return {key: kept(value, now[key]) for key, value in earlier.items() if key in now}
    if isinstance(earlier, list):
        return [kept(*pair) for pair in zip(earlier, now, strict=True)]
    return now


@pytest.mark.parametrize("name", ["state.json", "claims.json"])
def test_writes_every_key_that_the_release_before_reads(tmp_path: Path, name: str) -> None:
    """It may come back: none of its keys is missing, and none has another value."""
    laid(tmp_path, as_it_was, name)
    earlier = json.loads((EARLIER / name).read_text())
    if name == "state.json":
        states = CheckpointFile(tmp_path)
        states.save(replace(states.saved, profile="another"))
        earlier["profile"] = "another"
    else:
        claims = ClaimsFile(tmp_path, tmp_path / "cdi", lambda: None)
        claims.put(replace(claims.record.claims["uid-mig"], name="another"))
        next(c for c in earlier["claims"] if c["uid"] == "uid-mig")["name"] = "another"
    assert kept(earlier, json.loads((tmp_path / name).read_text())) == earlier


@pytest.mark.parametrize("more", ["", " newer field"])
def test_reads_the_limits_of_another_release(tmp_path: Path, more: str) -> None:
    folder = tmp_path / "shares/4711"
    folder.mkdir(parents=True)
    shutil.copy(EARLIER / "devices", folder)
    text = (EARLIER / "limits").read_text()
    (folder / "limits").write_text(text.replace("\n", f"{more}\n"))
    create_account(folder / "account")
    nothing: Any = SimpleNamespace(snapshot=None)
    accounts = ShareAccounts(
        nothing, nothing, ShareFolder(tmp_path / "tenants", tmp_path), tmp_path
    )
    limits = accounts._read({"4711": folder}, {})
    assert limits["4711"].limits == {"GPU-1": 6291456000}
    assert limits["4711"].device_ids == ("GPU-1::0", "GPU-1::1")


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
    laid(tmp_path, as_it_was, ".held")
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
    laid(tmp_path, as_it_was, ".held", "claims.json")
    (tmp_path / "divvy.gpu-claim-uid-mig.held").write_text('{"version": 2}')
    file = ClaimsFile(tmp_path, tmp_path, lambda: None)
    assert file.damage == ""
    known_claims(file.record)


@pytest.mark.parametrize("state", ClaimState)
def test_keeps_a_claims_state_in_a_file_of_either_release(
    tmp_path: Path, state: ClaimState
) -> None:
    laid(tmp_path, as_it_was, "claims.json")
    file = ClaimsFile(tmp_path, tmp_path / "cdi", lambda: None)
    file.put(replace(file.record.claims["uid-mig"], name="another", state=state))
    path = tmp_path / "claims.json"
    raw = json.loads(path.read_text())
    (mig,) = (claim for claim in raw["claims"] if claim["uid"] == "uid-mig")
    assert (mig["state"], mig["done"]) == (state, state is ClaimState.PREPARE_COMPLETED)
    del mig["state"]  # as the release before writes it
    path.write_text(json.dumps(raw))
    again = ClaimsFile(tmp_path, tmp_path / "cdi", lambda: None)
    assert again.record == file.record
