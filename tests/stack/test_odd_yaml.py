"""Whatever text a stack file holds, the answer is a cluster or one of Divvy's own errors."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from divvy.stack.errors import StackError
from divvy.stack.file import StackFile
from divvy.stack.sections import read_cluster
from tests.divvy_command import divvy_command, divvy_environment

TEXT = """config:
  divvy:cluster:
    profiles: {whole: {}}
    pools: {a: {profile: whole, hardware: {model: T4, gpus: 2, count: 1}}}
"""


def read(text: str) -> str:
    """Return what is wrong with a stack file, "" if nothing."""
    try:
        read_cluster(StackFile("x.yaml", text, "x"))
    except StackError as refused:
        return str(refused)
    return ""


@pytest.mark.parametrize(
    "odd",
    [
        "2024-02-30",
        "2024-01-02T25:00:00Z",
        "9" * 5000,
        "0b_",
        "0x_",
        "1:99:_",
        "[" * 900 + "]" * 900,
        "{a: " * 400 + "1" + "}" * 400,
        "!!binary x",
        "!!set {a}",
        "!!timestamp x",
        "!!int x",
        "!!bool x",
        "!!float x",
        "!!omap x",
        "!!python/object:os.system x",
        ".nan",
        "&a [*a]",
        "? [1, 2]\n      : 3",
        "'\x1b[31m'",
    ],
)
@pytest.mark.parametrize("where", ["namespace", "devices", "driver", "imagePullSecrets"])
def test_reports_odd_yaml_in_one_readable_error(odd: str, where: str) -> None:
    message = read(f"{TEXT}    {where}: {odd}\n")
    assert message.startswith("x.yaml")
    assert len(message) < 1500
    assert "\x1b" not in message
    assert "datetime" not in message
    assert "sys." not in message


def test_refuses_aliases_of_aliases_at_once() -> None:
    lines = ["a0: &a0 [ha, ha, ha, ha, ha, ha, ha, ha, ha, ha]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    message = read("\n".join([*lines, TEXT.replace("whole: {}", "whole: {devices: *a7}")]))
    assert "are YAML aliases repeated?" in message
    assert len(message) < 1500


SCALARS = ("a", "on", "~", "1", "-3", "1e9", ".inf", "0x1f", "2024-01-01", "12:30:45", "'x'")
SYNTAX = ("[", "]", "{", "}", ": ", ", ", "- ", "? ", "&x ", "*x", "!!set ", "!!str ", "|\n   t")
KEYS = ("profiles", "pools", "mig", "replicas", "devices", "health: ", "change: ", "\n    ")
WORDS = st.sampled_from([*SCALARS, *SYNTAX, *KEYS])


@settings(max_examples=150)
@given(st.lists(WORDS, max_size=14).map("".join))
def test_raises_only_own_errors_for_random_yaml(text: str) -> None:
    read(f"{TEXT}    {text}\n")
    read(text)


def test_refuses_an_endless_file() -> None:
    done = subprocess.run(
        divvy_command("validate", "--file", "/dev/zero"),
        env=divvy_environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30)),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("error: /dev/zero is longer than 16,777,216 characters")


def test_reports_endless_nesting_in_one_error(tmp_path: Path) -> None:
    file = tmp_path / "deep.yaml"
    file.write_text("[" * 200_000)
    done = subprocess.run(
        divvy_command("validate", "--file", str(file)),
        env=divvy_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"error: {file} is not YAML: it is nested too deeply\n"
