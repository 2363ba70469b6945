"""Project and stack files are read as Pulumi reads them and written as people left them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from divvy.engine.errors import NotSupported, ProjectProblem
from divvy.engine.project import Project, backend_root, find_project, stack_config
from divvy.engine.stack_file import set_value


@pytest.fixture
def project(tmp_path: Path) -> Project:
    (tmp_path / "stacks").mkdir()
    (tmp_path / "Pulumi.yaml").write_text("name: p\nruntime: python\nstackConfigDir: stacks\n")
    (tmp_path / "stacks/Pulumi.dev.yaml").write_text(
        "# why\nconfig:\n  p:level: one    # here\n  divvy:cluster:\n    namespace: x\n"
    )
    return find_project(tmp_path / "stacks")


def test_structured_values_reach_the_program_as_json(project: Project) -> None:
    values = stack_config(project, "dev").values
    assert values == {"p:level": "one", "divvy:cluster": '{"namespace":"x"}'}


def test_setting_a_value_keeps_the_rest_of_the_file(project: Project) -> None:
    set_value(project, "dev", "level", "two", secret=False)
    set_value(project, "dev", "other", "x", secret=False)
    text = (project.stack_folder / "Pulumi.dev.yaml").read_text()
    assert text.startswith("# why\nconfig:\n")
    assert stack_config(project, "dev").values["p:level"] == "two"
    assert stack_config(project, "dev").values["p:other"] == "x"
    assert stack_config(project, "dev").values["divvy:cluster"] == '{"namespace":"x"}'


def test_a_secret_value_is_not_in_the_file(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open")
    set_value(project, "dev", "token", "hush", secret=True)
    assert "hush" not in (project.stack_folder / "Pulumi.dev.yaml").read_text()
    assert set(stack_config(project, "dev").sealed) == {"p:token"}


def test_a_structured_value_is_edited_in_the_file(project: Project) -> None:
    with pytest.raises(ProjectProblem, match="structured"):
        set_value(project, "dev", "divvy:cluster", "x", secret=False)


def test_a_secret_that_the_official_cli_wrote_is_replaced(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "open")
    file = project.stack_folder / "Pulumi.dev.yaml"
    file.write_text("config:\n  p:token:\n    secure: v1:old:old\n  p:level: one\n")
    set_value(project, "dev", "token", "new", secret=False)
    assert yaml.safe_load(file.read_text())["config"] == {"p:token": "new", "p:level": "one"}


@pytest.mark.parametrize(
    "text", ["config: {}\n", "config: {p:level: one}\n", "config: {'p:level': 'one'}\n"]
)
def test_a_value_is_set_however_the_file_is_written(project: Project, text: str) -> None:
    file = project.stack_folder / "Pulumi.dev.yaml"
    file.write_text(text)
    before = (yaml.safe_load(text) or {}).get("config") or {}
    set_value(project, "dev", "new", "value", secret=False)
    assert yaml.safe_load(file.read_text())["config"] == {**before, "p:new": "value"}


@pytest.mark.parametrize("text", ["{}\n", "config: {\n  p:level: one }\n"])
def test_a_file_that_cannot_be_edited_line_by_line_is_left_alone(
    project: Project, text: str
) -> None:
    file = project.stack_folder / "Pulumi.dev.yaml"
    file.write_text(text)
    with pytest.raises(ProjectProblem, match="as a block"):
        set_value(project, "dev", "new", "value", secret=False)
    assert file.read_text() == text


def test_an_unknown_stack_names_those_there_are(project: Project) -> None:
    with pytest.raises(ProjectProblem, match="known: dev"):
        stack_config(project, "prod")


def test_no_project_is_said(tmp_path: Path) -> None:
    with pytest.raises(ProjectProblem, match=r"no Pulumi\.yaml"):
        find_project(tmp_path)


def test_other_runtimes_and_backends_are_refused_by_name(project: Project) -> None:
    (project.folder / "Pulumi.yaml").write_text("name: p\nruntime: go\n")
    with pytest.raises(NotSupported, match="go"):
        find_project(project.folder)
    with pytest.raises(NotSupported, match="s3://"):
        backend_root(project, {"PULUMI_BACKEND_URL": "s3://bucket"})
