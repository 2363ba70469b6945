"""The commands of the pages that ask or change a cluster: on the running lab, the last ones not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.cluster.paths import REPOSITORY
from tests.bare_cluster import bare_cluster
from tests.deployment import Deployment
from tests.docs.page_commands import PAGES, Shell, lane, page_commands, page_files, project_folder
from tests.docs.test_pages import CONFIG_MAPS

pytestmark = pytest.mark.lab
NODE = "gpu-t4"
LABELS = (
    *(
        f"nvidia.com/gpu.deploy.{component}"
        for component in ("device-plugin", "gpu-feature-discovery")
    ),
    "nvidia.com/gpu.deploy.mig-manager",
)
IMAGE = f"registry.example/divvy/agent@sha256:{'0' * 64}"


def commands(page: str, where: str) -> list[str]:
    """Return the commands of a page that run there, for the lab's stack and one of its nodes."""
    lines = [command for command in page_commands(page) if lane(command) == where]
    return [re.sub(r"\bNODE\b", NODE, re.sub(r"\bprod\b", "lab", line)) for line in lines]


@pytest.fixture
def shell(deployed: Deployment, tmp_path: Path) -> Iterator[Shell]:
    """Give a shell in the deployed project, with what the pages take for granted."""
    kubectl = deployed.lab.kubectl
    for namespace in sorted({namespace for namespace, _ in CONFIG_MAPS}):
        kubectl("create", "namespace", namespace)
    for (namespace, name), data in CONFIG_MAPS.items():
        metadata = {"name": name, "namespace": namespace}
        kind = {"apiVersion": "v1", "kind": "ConfigMap"}
        deployed.lab.apply({**kind, "metadata": metadata, "data": data})
    for name in ("pod.yaml", "pods.yaml"):
        (deployed.folder / name).write_text(page_files("first-pool")["pod.yaml"])
    yield Shell(deployed.folder, tmp_path / "programs", deployed.lab.kubeconfig)
    for namespace in sorted({namespace for namespace, _ in CONFIG_MAPS}):
        kubectl("delete", "namespace", namespace, "--wait=false")
    kubectl("label", "node", NODE, *(f"{label}-" for label in LABELS))


def test_runs_every_command_that_asks_the_cluster(deployed: Deployment, shell: Shell) -> None:
    # What several pages have runs once.
    for command in dict.fromkeys(line for page in PAGES for line in commands(page, "cluster")):
        differs = re.search(r"divvy (diff|fit|preview)\b", command)
        shell.run(command, expect=(0, 2) if differs else (0,))
    read = yaml.safe_load((deployed.folder / "time-slicing.yaml").read_text())
    assert read["kind"] == "ConfigMap"


def test_leaves_nothing_after_the_last_commands(tmp_path: Path) -> None:
    folder = project_folder(tmp_path)
    # One without claims: on a cluster without nodes their Deployment would not get ready.
    whole = yaml.safe_load((REPOSITORY / "stacks/Pulumi.cern.yaml").read_text())
    value = whole["config"]["divvy:cluster"]
    with bare_cluster() as cluster:
        value |= {"plugin": {"image": {"reference": IMAGE}}, "kubeconfig": str(cluster.kubeconfig)}
        stack = {"config": {"divvy:cluster": value}}
        (folder / "stacks/Pulumi.lab.yaml").write_text(yaml.safe_dump(stack))
        shell = Shell(folder, tmp_path / "programs", cluster.kubeconfig)
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}
        node["metadata"] |= {"annotations": {"divvy.gpu/status": "{}"}}  # type: ignore[operator]
        cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump(node))
        shell.run("divvy up -s lab")
        ran = [shell.run(command) for page in PAGES for command in commands(page, "end")]
        assert len(ran) == 2
        left = cluster.get(
            "daemonsets,deployments,services,configmaps,clusterroles",
            "--selector=app.kubernetes.io/name=divvy",
        )
        assert left["items"] == []
        assert "divvy.gpu/status" not in cluster.get("node", NODE)["metadata"]["annotations"]
        assert "nothing of Divvy is deployed" in shell.run("divvy destroy -s lab")
