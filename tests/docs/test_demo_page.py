"""What pages say of the lab's stack is what a preview of it shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from lab.cluster.paths import REPOSITORY
from tests.bare_cluster import bare_cluster
from tests.docs.page_commands import Shell, project_folder

pytestmark = pytest.mark.lab
IMAGE = f"registry.example/divvy/agent@sha256:{'0' * 64}"


def number(page: str, pattern: str) -> str:
    """Return the number that a page says."""
    (figure,) = re.findall(pattern, (REPOSITORY / page).read_text(), re.MULTILINE)
    return str(figure)


def test_creates_as_many_resources_as_the_pages_say(tmp_path: Path) -> None:
    created = number("docs/lab.md", r"^(\d+) objects to create")
    folder = project_folder(tmp_path)
    stack = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
    with bare_cluster() as cluster:
        stack["config"]["divvy:cluster"]["kubeconfig"] = str(cluster.kubeconfig)
        stack["config"]["divvy:cluster"]["plugin"] = {"image": {"reference": IMAGE}}
        (folder / "stacks/Pulumi.lab.yaml").write_text(yaml.safe_dump(stack))
        shell = Shell(folder, tmp_path / "programs", cluster.kubeconfig)
        shown = shell.run("divvy preview -s lab", expect=(2,))
    assert f"\n{created} objects to create" in shown
