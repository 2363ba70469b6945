"""Projects are found as Pulumi finds them, and a stack that is missing gets one error."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.stack.errors import StackError
from divvy.stack.project import Project, find_project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\nstackConfigDir: stacks\n")
    (tmp_path / "stacks/Pulumi.dev.yaml").write_text("config: {}\n")
    return find_project(tmp_path / "stacks")


def test_finds_a_project_in_a_parent_folder_with_its_stacks(project: Project) -> None:
    assert project.stacks() == ["dev"]
    assert project.stack_path("dev") == project.folder / "stacks/Pulumi.dev.yaml"


def test_refuses_an_unknown_stack_and_names_the_known_ones(project: Project) -> None:
    with pytest.raises(StackError, match=r"no stack 'prod': .* does not exist; known: dev"):
        project.stack_path("prod")


def test_suggests_the_file_option_for_a_file_in_place_of_a_stack(project: Project) -> None:
    with pytest.raises(StackError, match=r"'mine\.yaml' is a file, not a stack: use --file mine"):
        project.stack_path("mine.yaml")


def test_says_where_to_run_outside_a_project(tmp_path: Path) -> None:
    with pytest.raises(
        StackError, match=r"no Divvy project here or above .*; `divvy init NAME` makes one"
    ):
        find_project(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("- name\n", "is not a mapping"),
        ("a: [\n", "is not YAML: line 2"),
        ("name: a\nname: b\n", "line 2: name: is defined twice"),
        ("stackConfigDir: 5\n", "`stackConfigDir` is not a string"),
    ],
)
def test_reports_a_wrong_project_file_in_one_sentence(
    tmp_path: Path, text: str, words: str
) -> None:
    (tmp_path / "Pulumi.yaml").write_text(text)
    with pytest.raises(StackError, match=words):
        find_project(tmp_path)


def test_takes_an_empty_folder_for_the_projects_own(tmp_path: Path) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: a\nruntime: python\nmain:\nstackConfigDir:\n")
    project = find_project(tmp_path)
    assert project.stack_folder == tmp_path
