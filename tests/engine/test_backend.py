"""State is kept in files below the project, or where PULUMI_BACKEND_URL says."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.engine.errors import NotSupported
from divvy.engine.program import python_of
from divvy.engine.state.backend import backend_root
from divvy.stack.project import Project, find_project


def project_of(folder: Path, runtime: str = "python") -> Project:
    (folder / "Pulumi.yaml").write_text(f"name: p\nruntime: {runtime}\n")
    return find_project(folder)


def test_finds_the_state_in_the_projects_or_the_configured_folder(tmp_path: Path) -> None:
    project = project_of(tmp_path)
    assert backend_root(project, {}) == tmp_path
    assert backend_root(project, {"PULUMI_BACKEND_URL": "file:///x"}) == Path("/x")
    # Options of the official backend are no part of the path.
    assert backend_root(project, {"PULUMI_BACKEND_URL": "file:///x?no_tmp_dir=true"}) == Path("/x")
    packed = {"PULUMI_BACKEND_URL": "file:///x", "PULUMI_DIY_BACKEND_GZIP": "true"}
    with pytest.raises(NotSupported, match="PULUMI_DIY_BACKEND_GZIP"):
        backend_root(project, packed)
    with pytest.raises(NotSupported, match="s3://x"):
        backend_root(project, {"PULUMI_BACKEND_URL": "s3://x"})


def test_refuses_the_home_folder_of_an_unknown_user(tmp_path: Path) -> None:
    environment = {"PULUMI_BACKEND_URL": "file://~nobody-here/x"}
    with pytest.raises(NotSupported, match="that user's home folder is not known"):
        backend_root(project_of(tmp_path), environment)


def test_refuses_a_program_in_another_language_by_name(tmp_path: Path) -> None:
    with pytest.raises(NotSupported, match="runtime 'nodejs'"):
        python_of(project_of(tmp_path, "nodejs"))
