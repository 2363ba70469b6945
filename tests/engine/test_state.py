"""A stack's state: official checkpoints, the journal, locks and secrets."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import replace
from pathlib import Path

import pytest

from divvy.engine.errors import StateProblem
from divvy.engine.state.lock import break_locks, lock_folder, locked
from divvy.engine.state.resource import ResourceState
from divvy.engine.state.secrets import Passphrase
from divvy.engine.state.store import StateStore
from divvy.engine.values import secret

OFFICIAL = Path(__file__).with_name("official")
URN = "urn:pulumi:dev::p::kubernetes:core/v1:ConfigMap::"


def store(folder: Path, passphrase: str | None = "open") -> StateStore:
    return StateStore(folder, "p", "dev", lambda: passphrase)


def resource(name: str, **more: object) -> ResourceState:
    return replace(
        ResourceState(f"{URN}{name}", "kubernetes:core/v1:ConfigMap", custom=True, id=f"ns/{name}"),
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("name", ["after-create", "after-change", "after-failed-daemonset"])
def test_an_official_checkpoint_is_read_and_written_back_in_its_shape(
    tmp_path: Path, name: str
) -> None:
    raw = json.loads((OFFICIAL / f"checkpoint-{name}.json").read_text())
    found = store(tmp_path)
    resources = found.decode(raw)
    written = found.encode(resources)
    latest, official = written["checkpoint"]["latest"], raw["checkpoint"]["latest"]
    assert latest["resources"] == official["resources"]
    assert latest["secrets_providers"] == official["secrets_providers"]
    assert list(latest) == list(official)
    assert [list(one) for one in latest["resources"]] == [
        list(one) for one in official["resources"]
    ]


def test_a_failed_daemonset_keeps_its_errors(tmp_path: Path) -> None:
    raw = json.loads((OFFICIAL / "checkpoint-after-failed-daemonset.json").read_text())
    assert any(found.init_errors for found in store(tmp_path).decode(raw))


def test_a_newer_checkpoint_is_refused_and_untouched(tmp_path: Path) -> None:
    found = store(tmp_path)
    found.create()
    text = found.checkpoint_path.read_text().replace('"version": 3', '"version": 4')
    found.checkpoint_path.write_text(text)
    with pytest.raises(StateProblem, match="checkpoint version 4"):
        found.load()
    assert found.checkpoint_path.read_text() == text


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 3}', '{"version": 3, "checkpoint": 7}']
)
def test_a_corrupt_checkpoint_is_refused_and_untouched(tmp_path: Path, text: str) -> None:
    found = store(tmp_path)
    found.create()
    found.checkpoint_path.write_text(text)
    with pytest.raises(StateProblem, match="is not a checkpoint"):
        found.load()
    assert found.checkpoint_path.read_text() == text


def test_steps_of_a_run_that_died_are_not_lost(tmp_path: Path) -> None:
    dead = store(tmp_path)
    dead.create()
    dead.began("create", f"{URN}one", "ns/one")
    dead.done(resource("one"))
    dead.began("create", f"{URN}two", "ns/two")
    state = store(tmp_path).load()
    assert [found.urn for found in state.resources] == [f"{URN}one"]
    assert [(found.operation, found.id) for found in state.pending] == [("create", "ns/two")]


def test_a_record_cut_off_in_the_middle_never_happened(tmp_path: Path) -> None:
    dead = store(tmp_path)
    dead.create()
    dead.done(resource("one"))
    journal = tmp_path / ".pulumi/divvy/p/dev.journal"
    whole = journal.read_bytes()
    dead.done(resource("two"))
    cut = journal.read_bytes()
    for length in range(len(whole), len(cut)):
        journal.write_bytes(cut[:length])
        assert [found.id for found in store(tmp_path).load().resources] == ["ns/one"]


def test_a_deletion_in_the_journal_counts(tmp_path: Path) -> None:
    found = store(tmp_path)
    found.write([resource("one"), resource("two")])
    found.gone(resource("one"))
    assert [left.id for left in store(tmp_path).load().resources] == ["ns/two"]


def test_a_replaced_resource_lies_beside_its_successor(tmp_path: Path) -> None:
    found = store(tmp_path)
    found.write([resource("one", id="ns/old")])
    found.done(resource("one", id="ns/old", delete=True))
    found.done(resource("one", id="ns/new"))
    state = store(tmp_path).load()
    assert [(left.id, left.delete) for left in state.resources] == [
        ("ns/old", True),
        ("ns/new", False),
    ]


def test_secrets_lie_encrypted_and_come_back(tmp_path: Path) -> None:
    found = store(tmp_path)
    found.write([resource("one", inputs={"data": {"token": secret("hush")}})])
    assert "hush" not in found.checkpoint_path.read_text()
    (back,) = store(tmp_path).load().resources
    assert back.inputs == {"data": {"token": secret("hush")}}


def test_a_wrong_passphrase_is_named(tmp_path: Path) -> None:
    store(tmp_path).write([resource("one", inputs={"token": secret("hush")})])
    with pytest.raises(StateProblem, match="passphrase is not this stack's"):
        store(tmp_path, "wrong").load()


def test_without_secrets_no_passphrase_is_asked_for(tmp_path: Path) -> None:
    store(tmp_path, None).write([resource("one")])
    assert store(tmp_path, None).load().resources


def test_an_empty_passphrase_is_one() -> None:
    crypter = Passphrase(None, lambda: "")
    assert crypter.decrypt(crypter.encrypt("x")) == "x"


def test_a_second_run_is_refused_with_the_name_of_the_first(tmp_path: Path) -> None:
    with (
        locked(tmp_path, "p", "dev"),
        pytest.raises(StateProblem, match=f"process {os.getpid()}"),
        locked(tmp_path, "p", "dev"),
    ):
        pass


def test_the_lock_of_a_dead_run_is_taken_over(tmp_path: Path) -> None:
    folder = lock_folder(tmp_path, "p", "dev")
    folder.mkdir(parents=True)
    dead = {"pid": 2**22 + 1, "hostname": socket.gethostname(), "username": "somebody"}
    (folder / "dead.json").write_text(json.dumps(dead))
    with locked(tmp_path, "p", "dev"):
        pass
    assert not list(folder.iterdir())


def test_a_lock_of_another_host_stays_until_it_is_broken(tmp_path: Path) -> None:
    folder = lock_folder(tmp_path, "p", "dev")
    folder.mkdir(parents=True)
    (folder / "far.json").write_text(json.dumps({"pid": 1, "hostname": "elsewhere"}))
    with pytest.raises(StateProblem, match="elsewhere"), locked(tmp_path, "p", "dev"):
        pass
    assert break_locks(tmp_path, "p", "dev") == 1


def test_a_rename_is_followed_by_all_who_name_it_wherever_the_run_dies(tmp_path: Path) -> None:
    found = store(tmp_path)
    found.create()
    old, new = f"{URN}old", f"{URN}new"
    found.write(
        [
            resource("old"),
            resource("user", dependencies=(old,), property_dependencies={"data": (old,)}),
        ]
    )
    found.renamed(old, new)
    state = store(tmp_path).load().live()
    assert set(state) == {new, f"{URN}user"}
    assert state[new].id == "ns/old"
    assert state[f"{URN}user"].dependencies == (new,)
    assert state[f"{URN}user"].property_dependencies == {"data": (new,)}
