"""A stack file with errors stops a run before anything is registered, with the errors' lines."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from divvy.lab.paths import REPOSITORY
from tests.divvy_command import run_divvy

WRONG = """\
config:
  divvy:cluster:
    profiles: {whole: {}}
    pools:
      all: {profile: hole}
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Give a project over this repository's program."""
    project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
    project |= {"main": str(REPOSITORY), "stackConfigDir": "."}
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    return tmp_path


def test_reports_a_wrong_cluster_with_its_lines(project: Path) -> None:
    (project / "Pulumi.dev.yaml").write_text(WRONG)
    done = run_divvy("preview", "-s", "dev", folder=project, expect=None)
    words = done.stdout + done.stderr
    assert done.returncode == 1, words
    assert "Pulumi.dev.yaml has 1 error:" in words
    assert "line 5: pools.all.profile: names profile 'hole', which does not exist" in words
    assert "did you mean whole?" in words
    assert not (project / ".pulumi").exists()


def test_reports_a_duplicate_key_with_its_line(project: Path) -> None:
    (project / "Pulumi.dev.yaml").write_text(WRONG + "      all: {profile: whole}\n")
    done = run_divvy("preview", "-s", "dev", folder=project, expect=None)
    assert done.returncode == 1
    assert "line 6: config.divvy:cluster.pools.all: is defined twice; keep one" in done.stderr


def test_reports_a_stack_file_that_is_not_utf_8_in_one_sentence(project: Path) -> None:
    file = project / "Pulumi.dev.yaml"
    file.write_bytes(WRONG.replace("hole", "Höhle").encode("latin-1"))
    done = run_divvy("preview", "-s", "dev", folder=project, expect=1)
    assert done.stderr == f"error: {file} is not text in UTF-8\n"


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("{divvy: {cluster: {}}}", "has no `config: {divvy:cluster: …}`, which describes the"),
        ("{divvy:cluster: x}", "line 1: divvy:cluster: is 'x'"),
    ],
)
def test_says_what_a_stack_file_without_a_cluster_lacks(
    project: Path, config: str, words: str
) -> None:
    (project / "Pulumi.dev.yaml").write_text(f"config: {config}\n")
    done = run_divvy("preview", "-s", "dev", folder=project, expect=1)
    assert words in done.stdout + done.stderr
    assert "pulumi config set" not in done.stdout + done.stderr


@pytest.mark.parametrize("command", ["plan", "preview", "verify", "validate", "lab up", "chart"])
def test_reports_one_error_for_one_typo(project: Path, command: str) -> None:
    (project / "Pulumi.dev.yaml").write_text(WRONG)
    done = run_divvy(*command.split(), "-s", "deb", folder=project, expect=1)
    assert done.stderr.endswith(
        f"no stack 'deb': {project}/Pulumi.deb.yaml does not exist; known: dev\n"
    )


def test_destroys_a_stack_whose_file_is_gone(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\n")
    (tmp_path / "__main__.py").write_text("import pulumi\npulumi.export('a', 1)\n")
    file = tmp_path / "Pulumi.dev.yaml"
    file.write_text("config: {}\n")
    run_divvy("up", "--yes", "-s", "dev", folder=tmp_path)
    file.unlink()
    run_divvy("destroy", "--yes", "-s", "dev", folder=tmp_path)
    done = run_divvy("destroy", "--yes", "-s", "deb", folder=tmp_path, expect=1)
    assert done.stderr == "error: the stack deb has no state: nothing was ever deployed\n"
