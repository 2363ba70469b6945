"""`divvy up` in a user's folder, with an installed wheel."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.bare_cluster import BareCluster
from tests.installed import Installed
from tests.test_wheel import STACK

pytestmark = pytest.mark.lab
MAIN = """\
import pulumi
from divvy.components import cluster_of_stack

pulumi.export("image", cluster_of_stack().image)
"""


def test_deploys_from_a_users_folder_by_an_installed_wheel(
    installed: Installed, cluster: BareCluster, tmp_path: Path
) -> None:
    (tmp_path / "Pulumi.yaml").write_text("name: gpus\nruntime: python\n")
    (tmp_path / "__main__.py").write_text(MAIN)
    text = STACK.format(kubeconfig=cluster.kubeconfig, digest="0" * 64)
    (tmp_path / "Pulumi.mine.yaml").write_text(text)
    for arguments, code in ((("preview",), 2), (("up", "--yes"), 0), (("preview",), 0)):
        divvy = ("divvy", *arguments, "--stack=mine")
        installed.run(*divvy, folder=tmp_path, expect=code)
    assert "divvy-agent" in cluster.names("daemonsets", "divvy-system")
    installed.run("divvy", "destroy", "--yes", "--stack=mine", folder=tmp_path)
    assert "divvy-system" not in cluster.kubectl("get", "namespaces", "--output=name")
