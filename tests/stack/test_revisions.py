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


@pytest.mark.parametrize("folder", ["../stacks", "linked"])
def test_reads_a_revision_of_stacks_beside_the_project(
    folder: str, history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = history / "project"
    project.mkdir()
    (project / "linked").symlink_to("../stacks")
    (project / "Pulumi.yaml").write_text(f"name: x\nruntime: python\nstackConfigDir: {folder}\n")
    monkeypatch.chdir(project)
    assert "first" in read_side("HEAD~1", "lab").text


def test_reads_a_revision_before_a_folder_was_renamed_and_linked(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(history, "mv", "stacks", "deploy")
    (history / "stacks").symlink_to("deploy")
    git(history, "add", ".")
    git(history, "commit", "--quiet", "--message", "renamed")
    monkeypatch.chdir(history)
    for revision, text in (("HEAD", "second"), ("HEAD~1", "second"), ("HEAD~2", "first")):
        assert text in read_side(f"{revision}:stacks/Pulumi.lab.yaml", None).text


def test_follows_a_stack_file_that_is_a_link(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (history / "stacks/Pulumi.linked.yaml").symlink_to("Pulumi.lab.yaml")
    (history / "stacks/Pulumi.away.yaml").symlink_to("/away.yaml")
    git(history, "add", ".")
    git(history, "commit", "--quiet", "--message", "links")
    monkeypatch.chdir(history)
    side = read_side("HEAD", "linked")
    assert ("second" in side.text, side.name) == (True, "linked@HEAD")
    with pytest.raises(StackError, match=r"is a link to /away\.yaml, which the revision does not"):
        read_side("HEAD:stacks/Pulumi.away.yaml", None)


def test_refuses_a_folder_of_a_revision(history: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(history)
    with pytest.raises(StackError, match=r"^HEAD:stacks is a folder: name a file$"):
        read_side("HEAD:stacks", None)


def test_takes_no_revision_for_an_option_of_git(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = history / "made:."
    folder.mkdir()
    monkeypatch.chdir(history)
    with pytest.raises(StackError, match="git has no --output=made:x"):
        read_side("--output=made:x", None)
    assert not list(folder.iterdir())


def test_reads_a_revision_alike_in_every_locale(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (history / "stacks/Pulumi.lab.yaml").write_text("config: {note:x: é}\n", encoding="utf-8")
    git(history, "commit", "--quiet", "--all", "--message", "accent")
    monkeypatch.chdir(history)
    monkeypatch.setattr("locale.getencoding", lambda: "iso-8859-1")
    assert "é" in read_side("HEAD", "lab").text


def test_reports_an_unknown_revision_without_mentioning_shallow_clones(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(history)
    with pytest.raises(StackError) as unknown:
        read_side("HEAD~7", "lab")
    assert "HEAD~7 is not a file, a stack, or a git revision" in str(unknown.value)
    assert "shallow" not in str(unknown.value)


def test_names_the_stacks_for_a_misspelt_one_beside_a_revision(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(history)
    with pytest.raises(StackError, match=r"no stack 'lba'.*known: lab"):
        read_side("HEAD", "lba")


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
