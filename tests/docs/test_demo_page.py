"""What docs/demo.md shows of a run is what a run shows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from divvy.lab.paths import REPOSITORY
from tests.docs.page_commands import Shell
from tests.engine.bare_cluster import bare_cluster

pytestmark = pytest.mark.lab


def test_as_many_resources_are_created_as_the_page_says(tmp_path: Path) -> None:
    created = re.search(r"^(\d+) created", (REPOSITORY / "docs/demo.md").read_text(), re.MULTILINE)
    assert created is not None
    folder = tmp_path / "folder"
    (folder / "stacks").mkdir(parents=True)
    project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump({**project, "main": str(REPOSITORY)}))
    stack = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
    with bare_cluster() as cluster:
        stack["config"]["divvy:cluster"]["kubeconfig"] = str(cluster.kubeconfig)
        (folder / "stacks/Pulumi.lab.yaml").write_text(yaml.safe_dump(stack))
        shell = Shell(folder, tmp_path / "programs", cluster.kubeconfig)
        shown = shell.run("divvy preview -s lab", expect=(2,))
    assert f"\n{created[1]} to create" in shown
