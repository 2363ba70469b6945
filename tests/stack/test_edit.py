"""One value of a stack file changes; everything else stays as people wrote it."""

from __future__ import annotations

import difflib
import errno
import os
from pathlib import Path

import pytest
import yaml

from divvy.engine.state.secrets import encrypt_config
from divvy.lab.paths import REPOSITORY
from divvy.stack.config import full_key, stack_config
from divvy.stack.edit import set_value
from divvy.stack.errors import StackError
from divvy.stack.project import Project, find_project

TEXT = "# why\nconfig:\n  p:level: one    # here\n  divvy:cluster:\n    namespace: x\n"


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text(TEXT)
    return find_project(tmp_path)


def put(project: Project, key: str, value: str) -> str:
    """Set a plain value; return the file's text."""
    set_value(project, "dev", full_key(project, key), value, salt=None)
    return project.stack_path("dev").read_text()


def test_keeps_the_rest_of_the_file_when_setting_a_value(project: Project) -> None:
    put(project, "level", "two")
    text = put(project, "other", "x")
    assert text == TEXT.replace("one ", '"two" ') + '  p:other: "x"\n' or (
        text.startswith("# why\nconfig:\n") and "# here" in text
    )
    assert stack_config(project, "dev").values == {
        "p:level": "two",
        "divvy:cluster": '{"namespace":"x"}',
        "p:other": "x",
    }


def test_keeps_a_link_and_its_files_mode(project: Project, tmp_path: Path) -> None:
    file, shared = project.stack_path("dev"), tmp_path / "shared.yaml"
    file.rename(shared)
    shared.chmod(0o640)
    file.symlink_to("shared.yaml")
    assert "two" in put(project, "level", "two")
    assert file.is_symlink()
    assert shared.stat().st_mode & 0o777 == 0o640
    assert "two" in shared.read_text()


def test_keeps_a_secret_value_out_of_the_file(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open")
    secret, salt = encrypt_config("hush", None)
    set_value(project, "dev", "p:token", secret, salt=salt)
    text = project.stack_path("dev").read_text()
    assert "hush" not in text
    config = stack_config(project, "dev")
    assert (set(config.sealed), config.salt) == ({"p:token"}, salt)


def test_sets_a_salt_where_its_key_is_empty(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open")
    file = project.stack_path("dev")
    file.write_text("encryptionsalt:\nconfig: {}\n")
    secret, salt = encrypt_config("hush", stack_config(project, "dev").salt)
    set_value(project, "dev", "p:token", secret, salt=salt)
    assert stack_config(project, "dev").salt == salt


def test_writes_no_secret_beside_another_salt_than_its_own(project: Project) -> None:
    file = project.stack_path("dev")
    # Another `config set` came first.
    file.write_text("encryptionsalt: v1:theirs:x\nconfig: {}\n")
    before = file.read_bytes()
    with pytest.raises(StackError, match="encryptionsalt has just been set: run again"):
        set_value(project, "dev", "p:token", {"secure": "v1:a:b"}, salt="v1:ours:x")
    assert file.read_bytes() == before


def test_replaces_a_secret_that_the_official_cli_wrote(project: Project) -> None:
    file = project.stack_path("dev")
    file.write_text("config:\n  p:token:\n    secure: v1:old:old\n  p:level: one\n")
    put(project, "token", "new")
    assert yaml.safe_load(file.read_text())["config"] == {"p:token": "new", "p:level": "one"}


@pytest.mark.parametrize(
    "text",
    [
        "config: {}\n",
        "config:\n",
        "{}\n",
        "---\nconfig: {p:level: one}\n",
        "config: {'p:level': 'one'}\n",
        "config: {\n  p:level: one }\n",
        "config: {level: one}\n",
        "config:\n    p:level: one\n    p:list:\n      - 1\n",
    ],
)
@pytest.mark.parametrize("value", ["value", "yes", "012", "a: b", "two\nlines", "ünï"])
def test_sets_a_value_in_a_file_of_any_style(project: Project, text: str, value: str) -> None:
    file = project.stack_path("dev")
    file.write_text(text)
    before = (yaml.safe_load(text) or {}).get("config") or {}
    put(project, "new", value)
    assert yaml.safe_load(file.read_text())["config"] == {**before, "p:new": value}
    put(project, "level", value)
    assert stack_config(project, "dev").values["p:level"] == value


@pytest.mark.parametrize(
    "start", ["# ours\n---\n", "%YAML 1.1\n\n--- # ours\n", "\ufeff", "\ufeff# ours\n---\n"]
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_keeps_how_a_file_begins_and_how_its_lines_end(
    project: Project, start: str, end: str
) -> None:
    path = project.stack_path("dev")
    text = f"{start}config:\n  p:on: yes\n".replace("\n", end)
    path.write_bytes(text.encode())
    set_value(project, "dev", "p:level", "2", salt=None)
    assert path.read_bytes().decode() == f'{text}  p:level: "2"{end}'


def test_ends_lines_as_usual_in_a_file_that_ends_none(project: Project) -> None:
    path = project.stack_path("dev")
    path.write_bytes(b"config: {}")
    set_value(project, "dev", "p:level", "2", salt=None)
    assert path.read_bytes() == b'config:\n  p:level: "2"\n'


def test_takes_the_older_form_of_a_key(project: Project) -> None:
    set_value(project, "dev", "kubernetes:config:context", "prod", salt=None)
    assert stack_config(project, "dev").values["kubernetes:context"] == "prod"


@pytest.mark.parametrize("key", ["", ":a", "a:", "a:b:c", "a:config:", ":config:b", "a:config:b:c"])
def test_refuses_to_set_what_is_no_key(project: Project, key: str) -> None:
    with pytest.raises(StackError, match="is not a key: NAME or NAMESPACE:NAME is expected"):
        put(project, key, "x")
    assert project.stack_path("dev").read_text() == TEXT


@pytest.mark.parametrize("number", [errno.EROFS, errno.ENOSPC])
def test_names_a_file_that_cannot_be_written(
    project: Project, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("divvy.stack.edit.replace_file", fail)
    with pytest.raises(StackError) as refused:
        put(project, "level", "two")
    path = project.stack_path("dev")
    assert str(refused.value) == f"cannot write {path}: {os.strerror(number)}"


@pytest.mark.parametrize("value", ["{a: 1}", "[1]", "[{a: 1}]", "[secure]"])
def test_refuses_to_set_a_structured_value(project: Project, value: str) -> None:
    file, text = project.stack_path("dev"), f"config: {{p:x: {value}}}\n"
    file.write_text(text)
    with pytest.raises(StackError, match="p:x is structured: edit the file"):
        put(project, "x", "y")
    assert file.read_text() == text


@pytest.mark.parametrize("path", sorted((REPOSITORY / "stacks").glob("*.yaml")), ids=str)
def test_changes_only_the_new_line_in_the_stacks_of_this_project(
    project: Project, path: Path
) -> None:
    before = path.read_text()
    project.stack_path("dev").write_text(before)
    after = put(project, "new", "value")
    changed = list(difflib.unified_diff(before.splitlines(), after.splitlines(), n=0))[2:]
    assert [line for line in changed if not line.startswith("@@")] == ['+  p:new: "value"']


def test_refuses_to_set_what_nothing_reads(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: divvy\nruntime: python\n")
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text("config: {}\n")
    with pytest.raises(StackError, match=r"config\.divvy:owner: nothing reads it"):
        set_value(find_project(tmp_path), "dev", "divvy:owner", "me", salt=None)
    assert file.read_text() == "config: {}\n"
