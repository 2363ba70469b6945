"""`divvy --help`, and what a shell offers after a tab."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from divvy.cli.main import COMMANDS, app
from tests.divvy_command import divvy_environment, invoke

STACK = """\
config:
  divvy:cluster:
    profiles: {whole: {}, quarters: {timeSlicing: {replicas: 4}}}
    pools: {all: {profile: whole}}
"""


def test_lists_every_command_once_in_three_groups() -> None:
    lines = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "100"}).stdout.splitlines()
    titles = [line.strip("╭╮─ ") for line in lines if line.startswith("╭")]
    groups = ["Plan and review", "Run and look", "Set up"]
    # The checkout has divvy-lab, whose command is in no group of Divvy's own.
    assert titles == ["Options", *groups, "Installed beside Divvy"]
    assert [line for line in lines if line.startswith("│ lab ")]
    words = [
        line.strip("│ ").split()[0] for line in lines if line.startswith("│ ") and line[2] != " "
    ]
    assert [word for word in words if word in COMMANDS] == list(COMMANDS)


def test_lists_the_exit_codes_also_without_a_command() -> None:
    text = invoke("--help").stdout
    assert (
        "0: done; `preview`, `diff`: no difference; `fit`: all pods fit; `status`: nothing is "
        "wrong; `advise`: change it or leave it as it is 1: an error"
    ) in " ".join(text.split())
    assert invoke().stdout == text


@pytest.mark.parametrize("name", COMMANDS)
def test_has_every_command(name: str) -> None:
    result = invoke(name, "--help")
    assert result.exit_code == 0, result.output
    assert "Usage:" in result.stdout


def test_offers_completion_only_at_the_top_level() -> None:
    assert "--install-completion" in CliRunner().invoke(app, ["--help"]).stdout
    for command in ("plan", "lab"):
        assert "completion" not in CliRunner().invoke(app, [command, "--help"]).stdout


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("divvy pl", ["plan"]),
        ("divvy plan -s p", ["prod"]),
        ("divvy up --stack ", ["prod", "test"]),
        ("divvy validate -s t", ["test"]),
        ("divvy lab up -s pr", ["prod"]),
        ("divvy diff te", ["test"]),
    ],
)
def test_completes_from_files_only(tmp_path: Path, line: str, offered: list[str]) -> None:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\nstackConfigDir: stacks\n")
    for name in ("prod", "test"):
        (tmp_path / f"stacks/Pulumi.{name}.yaml").write_text(STACK)
    assert completed(tmp_path, line) == offered


def test_completes_nothing_outside_a_project(tmp_path: Path) -> None:
    assert completed(tmp_path, "divvy plan -s ") == []


def completed(folder: Path, line: str) -> list[str]:
    """Return what bash offers at the end of a command line."""
    words = line.split(" ")
    shell = {
        "_DIVVY_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
        "KUBECONFIG": "/nowhere",
    }
    program = "import sys; sys.argv[0] = 'divvy'; from divvy.cli.main import main; main()"
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=folder, env=divvy_environment(shell),
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert not ended.stderr
    return ended.stdout.split()
