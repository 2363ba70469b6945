"""A stack's state: official checkpoints, the journal, locks and secrets."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from divvy.engine.errors import NotSupported, StateProblem
from divvy.engine.state.lock import _place, break_locks, lock_folder, lock_holder, locked
from divvy.engine.state.resource import ResourceState
from divvy.engine.state.secrets import Passphrase, opened_texts, passphrase_from
from divvy.engine.state.store import StateStore
from divvy.engine.values import SECRET_SIGNATURE, SIGNATURE_KEY, secret
from tests.divvy_command import divvy_environment, run_divvy

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
def test_reads_an_official_checkpoint_and_writes_it_back_in_its_format(
    tmp_path: Path, name: str
) -> None:
    raw = json.loads((OFFICIAL / f"checkpoint-{name}.json").read_text())
    state_store = store(tmp_path)
    resources = state_store.decode(raw).resources
    written = state_store.encode(resources)
    latest, official = written["checkpoint"]["latest"], raw["checkpoint"]["latest"]
    assert latest["resources"] == official["resources"]
    assert latest["secrets_providers"] == official["secrets_providers"]
    assert list(latest) == list(official)
    assert [list(resource_state) for resource_state in latest["resources"]] == [
        list(resource_state) for resource_state in official["resources"]
    ]


def test_keeps_the_errors_of_a_failed_daemonset(tmp_path: Path) -> None:
    raw = json.loads((OFFICIAL / "checkpoint-after-failed-daemonset.json").read_text())
    assert any(
        resource_state.init_errors for resource_state in store(tmp_path).decode(raw).resources
    )


def test_refuses_a_newer_checkpoint_and_leaves_it_untouched(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.create()
    text = state_store.checkpoint_path.read_text().replace('"version": 3', '"version": 4')
    state_store.checkpoint_path.write_text(text)
    with pytest.raises(StateProblem, match="checkpoint version 4"):
        state_store.load()
    assert state_store.checkpoint_path.read_text() == text


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 3}', '{"version": 3, "checkpoint": 7}']
)
def test_refuses_a_corrupt_checkpoint_and_leaves_it_untouched(tmp_path: Path, text: str) -> None:
    state_store = store(tmp_path)
    state_store.create()
    state_store.checkpoint_path.write_text(text)
    with pytest.raises(StateProblem, match="is not a checkpoint"):
        state_store.load()
    assert state_store.checkpoint_path.read_text() == text


def test_keeps_the_steps_of_a_dead_run(tmp_path: Path) -> None:
    dead = store(tmp_path)
    dead.create()
    dead.began("create", f"{URN}one", "ns/one", resource("one"))
    dead.done(resource("one"))
    dead.began("create", f"{URN}two", "ns/two", resource("two"))
    dead.began("create", f"{URN}none", "ns/none", resource("none"))
    dead.abandoned(f"{URN}none")
    state = store(tmp_path).load()
    assert [resource_state.urn for resource_state in state.resources] == [f"{URN}one"]
    assert [(operation.operation, operation.id) for operation in state.pending] == [
        ("create", "ns/two")
    ]


@pytest.mark.parametrize(
    "record", ["5", '{"gone": {}}', '{"began": 3}', '{"done": {"urn": "x"}}', '{"later": 1}']
)
def test_refuses_a_damaged_record_in_the_journal(tmp_path: Path, record: str) -> None:
    state_store = store(tmp_path)
    state_store.done(resource("one"))
    text = state_store.journal_path.read_text() + f"{record}\n"
    state_store.journal_path.write_text(text)
    with pytest.raises(StateProblem, match=r"dev\.journal is damaged .*; it was not changed"):
        store(tmp_path).load()
    assert state_store.journal_path.read_text() == text


def test_refuses_a_checkpoint_with_a_name_that_is_no_urn(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.write([resource("one")])
    path = state_store.checkpoint_path
    path.write_text(path.read_text().replace(URN, "one"))
    with pytest.raises(StateProblem, match=r"is not a checkpoint .'oneone' is not a URN"):
        store(tmp_path).load()


def test_ignores_a_record_truncated_in_the_journal(tmp_path: Path) -> None:
    dead = store(tmp_path)
    dead.create()
    dead.done(resource("one"))
    journal = tmp_path / ".pulumi/divvy/p/dev.journal"
    whole = journal.read_bytes()
    dead.done(resource("two"))
    cut = journal.read_bytes()
    for length in range(len(whole), len(cut)):
        journal.write_bytes(cut[:length])
        assert [resource_state.id for resource_state in store(tmp_path).load().resources] == [
            "ns/one"
        ]


@pytest.mark.parametrize("file", ["stacks/p/dev.json", "divvy/p/dev.journal"])
def test_refuses_an_unreadable_file(tmp_path: Path, file: str) -> None:
    path = tmp_path / ".pulumi" / file
    path.mkdir(parents=True)
    with pytest.raises(StateProblem, match=f"{path.name} cannot be read: Is a directory"):
        store(tmp_path).load()


def test_replays_a_deletion_from_the_journal(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.write([resource("one"), resource("two")])
    state_store.gone(resource("one"))
    assert [left.id for left in store(tmp_path).load().resources] == ["ns/two"]


def test_keeps_a_replaced_resource_beside_its_successor(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.write([resource("one", id="ns/old")])
    state_store.done(resource("one", id="ns/new"), resource("one", id="ns/old", delete=True))
    state = store(tmp_path).load()
    assert [(left.id, left.delete) for left in state.resources] == [
        ("ns/new", False),
        ("ns/old", True),
    ]


def test_encrypts_and_decrypts_secrets(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.write([resource("one", inputs={"data": {"token": secret("hush")}})])
    assert "hush" not in state_store.checkpoint_path.read_text()
    (back,) = store(tmp_path).load().resources
    assert back.inputs == {"data": {"token": secret("hush")}}


def test_names_a_wrong_passphrase(tmp_path: Path) -> None:
    store(tmp_path).write([resource("one", inputs={"token": secret("hush")})])
    with pytest.raises(StateProblem, match="passphrase is not this stack's"):
        store(tmp_path, "wrong").load()


@pytest.mark.parametrize(
    ("salt", "words"),
    [("v1:a:b", "salt .* is damaged"), ("v1", "decrypted"), ("x", "unknown version x")],
)
def test_names_a_damaged_salt(salt: str, words: str) -> None:
    with pytest.raises(StateProblem, match=words):
        Passphrase(salt, lambda: "open").decrypt("v1:a:b")


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), (b"\xff", "it is not text in UTF-8")],
)
def test_names_a_passphrase_file_that_cannot_be_read(
    tmp_path: Path, content: bytes | None, why: str
) -> None:
    path = tmp_path / "passphrase"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(StateProblem) as problem:
        passphrase_from({"PULUMI_CONFIG_PASSPHRASE_FILE": str(path)})
    assert str(problem.value) == f"PULUMI_CONFIG_PASSPHRASE_FILE={path} cannot be read: {why}"


def test_names_a_nested_secret_that_is_no_text() -> None:
    crypter = Passphrase(None, lambda: "open")
    with pytest.raises(StateProblem, match="cannot be decrypted"):
        opened_texts('{"token": {"secure": 5}}', crypter)


def test_asks_for_no_passphrase_without_secrets(tmp_path: Path) -> None:
    store(tmp_path, None).write([resource("one")])
    assert store(tmp_path, None).load().resources


def test_accepts_a_passphrase_of_any_bytes() -> None:
    phrase = os.fsdecode(b"\xff")
    crypter = Passphrase(None, lambda: phrase)
    sealed = crypter.encrypt("hush")
    assert Passphrase(crypter.salt, lambda: phrase).decrypt(sealed) == "hush"


def test_accepts_an_empty_passphrase() -> None:
    crypter = Passphrase(None, lambda: "")
    assert crypter.decrypt(crypter.encrypt("x")) == "x"


def test_refuses_a_second_run_and_names_the_first(tmp_path: Path) -> None:
    with (
        locked(tmp_path, "p", "dev"),
        pytest.raises(StateProblem, match=f"process {os.getpid()}"),
        locked(tmp_path, "p", "dev"),
    ):
        pass


@pytest.mark.parametrize("error", [KeyError, OSError])  # until Python 3.12, and since
def test_locks_for_a_user_without_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def no_name() -> str:
        raise error

    monkeypatch.setattr("getpass.getuser", no_name)
    with locked(tmp_path, "p", "dev"):
        assert lock_holder(tmp_path, "p", "dev").startswith(f"{os.getuid()}@")


def test_names_a_lock_that_is_no_mapping(tmp_path: Path) -> None:
    folder = lock_folder(tmp_path, "p", "dev")
    folder.mkdir(parents=True)
    (folder / "odd.json").write_text("[]")
    with pytest.raises(StateProblem, match="cannot be read"), locked(tmp_path, "p", "dev"):
        pass


def test_takes_over_the_lock_of_a_dead_run(tmp_path: Path) -> None:
    folder = lock_folder(tmp_path, "p", "dev")
    folder.mkdir(parents=True)
    dead = {"pid": 2**22 + 1, "hostname": socket.gethostname(), **_place()}
    (folder / "dead.json").write_text(json.dumps(dead))
    with locked(tmp_path, "p", "dev"):
        pass
    assert not list(folder.iterdir())


@pytest.mark.parametrize("other", [{"boot": "another"}, {"pids": "another"}])
def test_keeps_a_lock_of_another_host_or_container_of_this_name(
    tmp_path: Path, other: dict[str, str]
) -> None:
    folder = lock_folder(tmp_path, "p", "dev")
    folder.mkdir(parents=True)
    holder = {"pid": 2**22 + 1, "hostname": socket.gethostname(), **_place(), **other}
    (folder / "there.json").write_text(json.dumps(holder))
    with pytest.raises(StateProblem, match="divvy cancel"), locked(tmp_path, "p", "dev"):
        pass
    assert break_locks(tmp_path, "p", "dev") == 1


def test_keeps_a_lock_of_another_host_until_it_is_broken(tmp_path: Path) -> None:
    folder = lock_folder(tmp_path, "p", "dev")
    folder.mkdir(parents=True)
    (folder / "far.json").write_text(
        json.dumps({"pid": 1, "username": "ann", "hostname": "elsewhere"})
    )
    there = r"the stack dev is locked by ann@elsewhere .*run `divvy cancel -s dev`"
    with pytest.raises(StateProblem, match=there), locked(tmp_path, "p", "dev"):
        pass
    assert break_locks(tmp_path, "p", "dev") == 1


def test_names_the_holder_of_a_lock_as_far_as_known(tmp_path: Path) -> None:
    folder = lock_folder(tmp_path, "p", "dev")
    assert lock_holder(tmp_path, "p", "dev") == ""
    with locked(tmp_path, "p", "dev"):
        assert f"process {os.getpid()}, since 20" in lock_holder(tmp_path, "p", "dev")
        with (
            pytest.raises(
                StateProblem, match=r"^the stack dev is locked by .*: wait for it to end$"
            ),
            locked(tmp_path, "p", "dev"),
        ):
            pass
    (folder / "ended.json").symlink_to(folder / "gone")  # as one that ends between look and read
    with locked(tmp_path, "p", "dev"):
        pass
    (folder / "damaged.json").write_text("{")
    with (
        pytest.raises(StateProblem, match=r"damaged\.json, which cannot be read: .*divvy cancel"),
        locked(tmp_path, "p", "dev"),
    ):
        pass


def test_refuses_to_break_the_lock_of_a_live_run(tmp_path: Path) -> None:
    with (
        locked(tmp_path, "p", "dev"),
        pytest.raises(StateProblem, match=f"process {os.getpid()} holds"),
    ):
        break_locks(tmp_path, "p", "dev")


def test_overwrites_nothing_that_another_run_wrote_meanwhile(tmp_path: Path) -> None:
    first, second = store(tmp_path), store(tmp_path)
    first.begin(first.load())
    second.begin(second.load())
    second.write([resource("two")])
    with pytest.raises(StateProblem, match="another run has written"):
        first.write([resource("one")])
    assert [resource_state.id for resource_state in store(tmp_path).load().resources] == ["ns/two"]
    apart = tmp_path / ".pulumi/stacks/p/dev.json.conflict"
    assert "ns/one" in apart.read_text()
    assert apart.stat().st_mode & 0o777 == 0o600
    second.write([resource("two"), resource("three")])


def test_names_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state_store = store(tmp_path)
    state_store.create()
    whole = state_store.checkpoint_path.read_bytes()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(Path, "write_text", full)
    for attempt in (
        lambda: state_store.done(resource("one")),
        lambda: state_store.write([resource("one")]),
        lambda: locked(tmp_path, "p", "dev").__enter__(),
    ):
        with pytest.raises(StateProblem, match="cannot be written: No space left on device"):
            attempt()
    assert state_store.checkpoint_path.read_bytes() == whole


def test_continues_a_journal_whose_disk_was_full_for_a_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_store = store(tmp_path)
    state_store.create()
    state_store.done(resource("one"))
    write = os.write
    taken: list[int] = []

    def nearly_full(descriptor: int, data: bytes) -> int:
        if taken:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        taken.append(write(descriptor, data[:20]))
        return taken[0]

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", nearly_full)
        with pytest.raises(StateProblem, match="No space left on device"):
            state_store.done(resource("two"))
    state_store.done(resource("three"))
    assert [left.id for left in store(tmp_path).load().resources] == ["ns/one", "ns/three"]


def test_begins_a_journal_whose_first_line_found_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_store = store(tmp_path)
    state_store.create()

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(StateProblem, match="No space left on device"):
            state_store.done(resource("one"))
    state_store.done(resource("two"))
    first, *_ = state_store.journal_path.read_text().splitlines()
    digest = hashlib.sha256(state_store.checkpoint_path.read_bytes()).hexdigest()
    assert json.loads(first) == {"checkpoint": digest}


def test_keeps_the_former_state_where_no_file_has_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(Path, "hardlink_to", refused)
    state_store = store(tmp_path)
    state_store.write([resource("one")])
    former = state_store.checkpoint_path.read_bytes()
    state_store.write([resource("two")])
    backup = state_store.checkpoint_path.with_name("dev.json.bak")
    assert backup.read_bytes() == former
    assert [left.id for left in store(tmp_path).load().resources] == ["ns/two"]


def test_reads_the_state_in_any_locale(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.write([resource("one", outputs={"data": {"a": "grün"}})])
    # The official engine does not escape what is not ASCII.
    raw = json.loads(state_store.checkpoint_path.read_text())
    state_store.checkpoint_path.write_text(json.dumps(raw, ensure_ascii=False), encoding="utf-8")
    program = (
        "import pathlib; from divvy.engine.state.store import StateStore\n"
        "state = StateStore(pathlib.Path('.'), 'p', 'dev', lambda: None).load()\n"
        "print(ascii(state.resources[0].outputs['data']['a']))"
    )
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env=divvy_environment(plain), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("'gr\\xfcn'\n", "")


def test_leaves_a_dead_runs_lock_that_a_preview_may_not_remove(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = lock_folder(tmp_path, "p", "dev")
    folder.mkdir(parents=True)
    holder = {"pid": 2**22 + 1, "hostname": socket.gethostname(), **_place()}
    (folder / "dead.json").write_text(json.dumps(holder))

    def refused(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        assert lock_holder(tmp_path, "p", "dev") == ""
        with pytest.raises(StateProblem, match=r"dead\.json cannot be written: Permission denied"):
            break_locks(tmp_path, "p", "dev")
    assert break_locks(tmp_path, "p", "dev") == 1


def test_keeps_creations_of_unknown_outcome_through_every_write(tmp_path: Path) -> None:
    dead = store(tmp_path)
    dead.create()
    dead.began("create", f"{URN}one", "ns/one", resource("one"))
    state_store = store(tmp_path)
    state = state_store.load()
    state_store.begin(state)
    assert [left.id for left in state.pending] == ["ns/one"]
    assert not state_store.journal_path.exists()
    latest = json.loads(state_store.checkpoint_path.read_text())["checkpoint"]["latest"]
    (pending,) = latest["pending_operations"]
    assert (pending["type"], pending["resource"]["urn"]) == ("creating", f"{URN}one")
    again = store(tmp_path).load()
    assert [left.resource for left in again.pending] == [resource("one")]


def test_shares_one_salt_among_threads_that_encrypt(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.create()
    secrets = [resource(f"s{n}", inputs={"token": secret(f"hush{n}")}) for n in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(state_store.done, secrets))
    assert sorted(left.urn for left in store(tmp_path).load().resources) == sorted(
        secret_resource.urn for secret_resource in secrets
    )


def test_restricts_the_state_to_its_owner(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.create()
    state_store.checkpoint_path.chmod(0o644)
    state_store.done(resource("one"))
    assert state_store.journal_path.stat().st_mode & 0o777 == 0o600
    state_store.write([resource("one")])
    backup = state_store.checkpoint_path.with_name("dev.json.bak")
    assert [path.stat().st_mode & 0o777 for path in (state_store.checkpoint_path, backup)] == [
        0o600
    ] * 2


def test_shows_nobody_a_backup_while_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state_store = store(tmp_path)
    state_store.write([resource("one", outputs={"data": "x" * 100_000})])
    restrict = os.fchmod
    lengths: list[int] = []

    def restricted(descriptor: int, mode: int) -> None:
        lengths.append(os.fstat(descriptor).st_size)
        restrict(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", restricted)
    state_store.write([resource("two")])
    assert lengths == [0]


def test_keeps_encrypted_what_was_encrypted_once(tmp_path: Path) -> None:
    store(tmp_path).write([resource("one", outputs={"data": secret({"token": "hush"})})])
    state_store = store(tmp_path)
    state_store.begin(state_store.load())
    state_store.done(resource("one", outputs={"data": {"token": "hush"}}))
    assert "hush" not in state_store.journal_path.read_text()
    state_store.write([resource("one", outputs={"data": {"token": "hush"}})])
    assert "hush" not in state_store.checkpoint_path.read_text()


def test_reads_and_writes_a_nested_secret_as_one(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.write([resource("one", inputs={"data": secret({"token": secret("hush")})})])
    raw = json.loads(state_store.checkpoint_path.read_text())
    (record,) = raw["checkpoint"]["latest"]["resources"]
    sealed_text = record["inputs"]["data"]["ciphertext"]
    salt = raw["checkpoint"]["latest"]["secrets_providers"]["state"]["salt"]
    crypter = Passphrase(salt, lambda: "open")
    assert json.loads(crypter.decrypt(sealed_text)) == {"token": "hush"}
    # As the official engine may nest them.
    inner = {SIGNATURE_KEY: SECRET_SIGNATURE, "ciphertext": crypter.encrypt('"hush"')}
    record["inputs"]["data"]["ciphertext"] = crypter.encrypt(json.dumps({"token": inner}))
    state_store.checkpoint_path.write_text(json.dumps(raw))
    (back,) = store(tmp_path).load().resources
    assert back.inputs == {"data": secret({"token": "hush"})}


def test_leaves_no_lock_if_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _: str) -> int:
        path.touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with (
            pytest.raises(StateProblem, match="No space left on device"),
            locked(tmp_path, "p", "dev"),
        ):
            pass
    with locked(tmp_path, "p", "dev"):
        pass


def test_continues_a_journal_truncated_in_a_line(tmp_path: Path) -> None:
    dead = store(tmp_path)
    dead.create()
    dead.done(resource("one"))
    with dead.journal_path.open("ab") as file:
        file.write(b'{"salt": null, "done": {"urn')
    state_store = store(tmp_path)
    state_store.begin(state_store.load())
    state_store.done(resource("two"))
    assert [left.id for left in store(tmp_path).load().resources] == ["ns/one", "ns/two"]


def test_refuses_to_fold_a_journal_over_another_programs_write(tmp_path: Path) -> None:
    dead = store(tmp_path)
    dead.create()
    dead.done(resource("one", id="ns/old"))
    elsewhere = store(tmp_path / "elsewhere")
    elsewhere.write([resource("one", id="ns/newer")])
    text = elsewhere.checkpoint_path.read_text()
    dead.checkpoint_path.write_text(text)
    with pytest.raises(StateProblem, match="another program has written"):
        store(tmp_path).load()
    assert dead.checkpoint_path.read_text() == text


def test_recovers_a_run_that_died_between_checkpoint_and_journal(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.create()
    state_store.done(resource("one"))
    kept = state_store.journal_path.read_bytes()
    state_store.write([resource("one"), resource("two")])
    digest = hashlib.sha256(state_store.checkpoint_path.read_bytes()).hexdigest()
    state_store.journal_path.write_bytes(kept + json.dumps({"folded": digest}).encode() + b"\n")
    assert [left.id for left in store(tmp_path).load().resources] == ["ns/one", "ns/two"]


def test_records_a_successor_and_what_it_replaced_at_once(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.create()
    state_store.done(resource("one", id="ns/new"), resource("one", id="ns/old", delete=True))
    state = store(tmp_path).load()
    assert [(left.id, left.delete) for left in state.resources] == [
        ("ns/new", False),
        ("ns/old", True),
    ]


@pytest.mark.parametrize("name", ["stacks/p/dev.json.gz", "stacks/dev.json"])
def test_refuses_another_layout_of_the_state_by_name(tmp_path: Path, name: str) -> None:
    path = tmp_path / ".pulumi" / name
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    with pytest.raises(NotSupported, match=path.name):
        store(tmp_path).load()


def test_follows_a_rename_in_all_references_wherever_the_run_dies(tmp_path: Path) -> None:
    state_store = store(tmp_path)
    state_store.create()
    old, new = f"{URN}old", f"{URN}new"
    state_store.write(
        [
            resource("old"),
            resource("user", dependencies=(old,), property_dependencies={"data": (old,)}),
        ]
    )
    state_store.renamed(old, new)
    state = store(tmp_path).load().live()
    assert set(state) == {new, f"{URN}user"}
    assert state[new].id == "ns/old"
    assert state[f"{URN}user"].dependencies == (new,)
    assert state[f"{URN}user"].property_dependencies == {"data": (new,)}


def test_keeps_a_stack_with_a_creation_of_unknown_outcome(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    dead = store(tmp_path)
    dead.create()
    dead.began("create", f"{URN}one", "ns/one", resource("one"))
    done = run_divvy("stack", "rm", "dev", "--yes", folder=tmp_path, expect=1)
    assert "still has resources" in done.stderr
    run_divvy("stack", "rm", "dev", "--yes", "--force", folder=tmp_path)
    assert not dead.exists
