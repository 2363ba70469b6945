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


@pytest.mark.parametrize("command", ["plan", "preview", "verify", "validate", "lab up", "chart"])
def test_reports_one_error_for_one_typo(project: Path, command: str) -> None:
    (project / "Pulumi.dev.yaml").write_text(WRONG)
    done = run_divvy(*command.split(), "-s", "deb", folder=project, expect=1)
    assert done.stderr.endswith(
        f"no stack 'deb': {project}/Pulumi.deb.yaml does not exist; known: dev\n"
    )
