"""The two sides of a comparison, out of a repository as CI has it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from divvy.stack.errors import StackError
from divvy.stack.revisions import read_side


def git(folder: Path, *arguments: str) -> None:
    name = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
    subprocess.run(["git", *name, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """Give a repository with two revisions of `stacks/Pulumi.lab.yaml`."""
    folder = tmp_path / "history"
    (folder / "stacks").mkdir(parents=True)
    (folder / "Pulumi.yaml").write_text("name: x\nruntime: python\nstackConfigDir: stacks\n")
    git(folder, "init", "--quiet")
    for text in ("first", "second"):
        (folder / "stacks/Pulumi.lab.yaml").write_text(f"config: {{note:x: {text}}}\n")
        git(folder, "add", ".")
        git(folder, "commit", "--quiet", "--message", text)
    return folder


def test_reads_the_stack_of_another_revision(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(history)
    side = read_side("HEAD~1", "lab")
    assert "first" in side.text
    assert side.name == "lab@HEAD~1"


def test_reports_an_unknown_revision_without_mentioning_shallow_clones(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(history)
    with pytest.raises(StackError) as unknown:
        read_side("HEAD~7", "lab")
    assert "HEAD~7 is not a file, a stack, or a git revision" in str(unknown.value)
    assert "shallow" not in str(unknown.value)


@pytest.mark.parametrize("side", ["HEAD~1", "HEAD~1:stacks/Pulumi.lab.yaml"])
def test_explains_a_revision_missing_from_a_shallow_clone(
    side: str, history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "--quiet", "--depth=1", history.as_uri(), "shallow")
    monkeypatch.chdir(tmp_path / "shallow")
    with pytest.raises(StackError, match=r"this clone is shallow .* git fetch --unshallow"):
        read_side(side, "lab")


def test_explains_a_repository_without_commits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `git init` and `divvy init`."""
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    (tmp_path / "Pulumi.lab.yaml").write_text("config: {}\n")
    git(tmp_path, "init", "--quiet")
    monkeypatch.chdir(tmp_path)
    for side in ("HEAD", "HEAD:Pulumi.lab.yaml"):
        with pytest.raises(StackError, match="has no commit yet: commit the stack file first"):
            read_side(side, "lab")


def test_passes_on_gits_message_outside_a_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: x\nruntime: python\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    with pytest.raises(StackError, match="git: not a git repository"):
        read_side("HEAD", "lab")
