"""divvy stack: the stacks of a project and their state."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from divvy.cli.main import app
from divvy.engine.state.resource import ResourceState
from divvy.engine.state.store import StateStore
from divvy.engine.urn import STACK_TYPE
from divvy.engine.values import secret

URN = "urn:pulumi:dev::p::"
OUTPUTS = {"text": "a b", "yes": True, "none": None, "nested": {"b": [1, "ü"], "a": secret("x")}}
STACK = ResourceState(f"{URN}{STACK_TYPE}::p-dev", STACK_TYPE, custom=False, outputs=OUTPUTS)


def store(stack: str, passphrase: str = "open") -> StateStore:
    return StateStore(Path(), "p", stack, lambda: passphrase)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["stack", *arguments])


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open")
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")
    store("dev").write([STACK])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("text", "a b"),
        ("yes", "true"),
        ("none", "null"),
        ("nested", r'{"a":"[secret]","b":[1,"\u00fc"]}'),
    ],
)
def test_prints_an_output_as_text_or_else_as_json(name: str, text: str) -> None:
    assert run("output", "-s", "dev", "--name", name).stdout == f"{text}\n"


@pytest.mark.parametrize(
    "command",
    [
        ("output", "-s", "dve"),
        ("export", "-s", "dve"),
        ("import", "-s", "dve", "file.json"),
        ("rm", "dve", "--yes"),
    ],
)
def test_refuses_a_stack_that_has_neither_state_nor_file(command: tuple[str, ...]) -> None:
    Path("file.json").write_text('{"version": 3, "deployment": {}}')
    result = run(*command)
    assert result.exit_code == 1
    assert "no stack 'dve': " in result.stderr
    assert "known: dev" in result.stderr
    assert not store("dve").exists


def test_removes_the_state_of_a_stack_whose_file_is_gone() -> None:
    Path("Pulumi.dev.yaml").unlink()
    assert run("rm", "dev", "--yes", "--force").exit_code == 0
    assert not store("dev").exists


def test_lists_stacks_also_if_one_of_them_cannot_be_opened() -> None:
    Path("Pulumi.other.yaml").write_text("config: {}\n")
    Path("Pulumi.new.yaml").write_text("config: {}\n")
    store("other", "closed").write([STACK])
    result = run("ls")
    assert result.exit_code == 0
    first, new, other = result.stdout.splitlines()
    assert first.split(maxsplit=1) == ["dev", "1 resources"]
    assert new.split(maxsplit=1) == ["new", "not deployed"]
    assert "the passphrase is not this stack's" in other


def test_imports_nothing_over_the_steps_of_a_run_that_died() -> None:
    resource = ResourceState(f"{URN}t::a", "t", custom=True, id="a")
    store("dev").done(resource)
    exported = {"version": 3, "deployment": {"resources": []}}
    Path("file.json").write_text(json.dumps(exported))
    result = run("import", "-s", "dev", "file.json")
    assert result.exit_code == 1
    assert "holds the steps of a run that died: `divvy refresh -s dev` makes" in result.stderr
    assert [left.id for left in store("dev").load().resources] == ["", "a"]
    assert run("import", "-s", "dev", "file.json", "--force").exit_code == 0
    assert store("dev").load().resources == ()
