"""A stack's configuration reaches programs as Pulumi hands it to them."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.stack.config import stack_config
from divvy.stack.errors import StackError
from divvy.stack.project import find_project


def config(folder: Path, text: str):
    (folder / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (folder / "Pulumi.dev.yaml").write_text(text)
    return stack_config(find_project(folder), "dev")


def test_passes_structured_values_to_the_program_as_json(tmp_path: Path) -> None:
    text = "config:\n  level: one\n  divvy:cluster:\n    namespace: x\n"
    values = config(tmp_path, text).values
    assert values == {"p:level": "one", "divvy:cluster": '{"namespace":"x"}'}


@pytest.mark.parametrize(
    ("written", "reaches"),
    [
        *(
            (word, word)
            for word in ("yes", "No", "on", "OFF", "y", "1:30", "0b2", "0o", "0x_", "=")
        ),
        ("true", "true"),
        ("False", "false"),
        ("~", "null"),
        ("017", "15"),
        ("0o17", "15"),
        ("-0x1F", "-31"),
        ("0b11", "3"),
        ("1_000", "1000"),
        ("1.0", "1"),
        ("1.50", "1.5"),
        ("{n: 1.0, l: [2., .5]}", '{"n":1,"l":[2,0.5]}'),
        ("[yes, 'true', true]", '["yes","true",true]'),
        ("{on: off}", '{"on":"off"}'),
    ],
)
def test_reads_plain_scalars_as_the_official_cli_does(
    tmp_path: Path, written: str, reaches: str
) -> None:
    """The official CLI reads stack files by gopkg.in/yaml.v3, PyYAML alone by YAML 1.1."""
    values = config(tmp_path, f"config:\n  answer: {written}\n").values
    assert values == {"p:answer": reaches}


def test_keeps_encrypted_values_apart(tmp_path: Path) -> None:
    text = "encryptionsalt: s\nconfig: {p:token: {secure: v1:a:b}}\n"
    read = config(tmp_path, text)
    assert (read.values, read.sealed, read.salt) == ({}, {"p:token": "v1:a:b"}, "s")


def test_refuses_a_config_that_is_no_mapping(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="`config` is not a mapping"):
        config(tmp_path, "config: [1]\n")


@pytest.mark.parametrize("value", ["2026-01-02", "{since: 2026-01-02}"])
def test_refuses_a_date_by_its_key(tmp_path: Path, value: str) -> None:
    with pytest.raises(StackError, match=r"config\.day is a date or has one in it: write it in q"):
        config(tmp_path, f"config: {{day: {value}}}\n")
    assert config(tmp_path, "config: {day: '2026-01-02'}\n").values == {"p:day": "2026-01-02"}


@pytest.mark.parametrize("value", ["!!binary aGVs", "!!set {a, b}", "{x: !!binary aGVs}"])
def test_refuses_what_json_has_not_by_its_key(tmp_path: Path, value: str) -> None:
    with pytest.raises(StackError, match=r"config\.odd is a set or binary data"):
        config(tmp_path, f"config: {{odd: {value}}}\n")


@pytest.mark.parametrize(
    "text",
    [
        "config: {odd: &a [*a]}\n",
        "config: &a {p:odd: *a}\n",
        "config:\n  a: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
        + "".join(f"  b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 9)),
    ],
)
def test_refuses_values_that_aliases_make_endless(tmp_path: Path, text: str) -> None:
    with pytest.raises(StackError, match="more than 1,000,000 values: are YAML aliases repeated"):
        config(tmp_path, text)


def test_refuses_a_salt_that_is_no_text(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="encryptionsalt is not a string"):
        config(tmp_path, "encryptionsalt: [a]\nconfig: {}\n")


def test_refuses_another_secrets_provider_by_name(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="secretsprovider: awskms://alias/x: only the passphrase"):
        config(tmp_path, "secretsprovider: awskms://alias/x\nconfig: {}\n")
