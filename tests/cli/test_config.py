"""divvy config: values of a stack's configuration."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from divvy.cli.main import app


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open")
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (tmp_path / "Pulumi.dev.yaml").write_text("config: {}\n")


def run(*arguments: str, typed: str | bytes | None = None) -> Result:
    return CliRunner().invoke(app, ["config", *arguments, "-s", "dev"], input=typed)


@pytest.mark.parametrize("options", [(), ("--secret",)])
@pytest.mark.parametrize("value", ["hunter2", "two\nlines\n", "ü"])
def test_reads_a_value_that_is_no_argument(options: tuple[str, ...], value: str) -> None:
    assert run("set", "token", *options, typed=f"{value}\n").exit_code == 0
    assert run("get", "token").stdout == f"{value}\n"
    text = Path("Pulumi.dev.yaml").read_text()
    assert (value.splitlines()[0] in text) is (options == ())


@pytest.mark.parametrize(
    ("typed", "words"), [("", "there is no value"), (b"\xff\n", "standard input is not text")]
)
def test_sets_nothing_without_a_value(typed: str | bytes, words: str) -> None:
    result = run("set", "token", typed=typed)
    assert result.exit_code == 1
    assert words in result.stderr
    assert Path("Pulumi.dev.yaml").read_text() == "config: {}\n"


@pytest.mark.parametrize("options", [(), ("--secret",)])
def test_refuses_an_argument_that_is_no_text(options: tuple[str, ...]) -> None:
    result = run("set", "token", os.fsdecode(b"\xff"), *options)
    assert (result.exit_code, "the value is not text in UTF-8" in result.stderr) == (1, True)
    assert Path("Pulumi.dev.yaml").read_text() == "config: {}\n"


def test_sets_an_empty_value_that_is_an_argument() -> None:
    assert run("set", "token", "").exit_code == 0
    assert run("get", "token").stdout == "\n"
