"""Kubernetes is upgraded below pods that hold devices of every kind, on a lab of its own.

The components of Kubernetes are alone in tests/lab/test_upgrade.py; here Divvy is deployed, and
its own report says what the upgrade changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.lab.paths import REPOSITORY, STATES
from divvy.lab.section import read_lab
from divvy.lab.tools import KUBERNETES_VERSIONS
from divvy.stack.file import read_path
from tests.agent.tenants import GPU, pod
from tests.divvy_command import run_divvy
from tests.running_lab import RunningLab

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
NAME, REGISTRY = "ages", "10.145.0.1:15945"
OLD, NEW = KUBERNETES_VERSIONS["1.36"], KUBERNETES_VERSIONS["1.37"]
# What pods ask for, with the node that serves it: by the device plugin, and by claims.
REQUESTS = [
    *[("gpu-h100", {"nvidia.com/gpu": 1})] * 2,
    ("gpu-a100", {"nvidia.com/gpu": 1}),
    *[("gpu-a100", {"nvidia.com/gpu.shared": 1})] * 3,
    ("gpu-a100", {"nvidia.com/mig-3g.20gb": 1}),
    ("gpu-a100", {"nvidia.com/mig-2g.10gb": 1}),
    *[("gpu-a100", {"nvidia.com/mig-1g.5gb": 1})] * 2,
    *[("gpu-t4", {"nvidia.com/gpu.shared": 1})] * 3,
    ("gpu-by-size", {"nvidia.com/gpu": 1}),
    *[("gpu-by-size", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 6000})] * 3,
    *[("gpu-on-demand", {"nvidia.com/mig-1g.5gb": 1})] * 2,
    ("gpu-on-demand", {"nvidia.com/mig-2g.10gb": 1}),
]


@dataclass(frozen=True)
class Upgraded:
    """A lab of its own, with the commands of its administrator."""

    folder: Path
    kubeconfig: Path

    @cached_property
    def lab(self) -> RunningLab:
        """Return what tests do with a lab that is up."""
        description = read_lab(read_path(self.folder / "stacks/Pulumi.lab.yaml"))
        return RunningLab(description, self.kubeconfig)

    def divvy(self, *arguments: str) -> str:
        """Run divvy for this lab and its stack."""
        environment = {"DIVVY_LAB": NAME}
        return run_divvy(
            *arguments, folder=self.folder, timeout=900, environment=environment
        ).stdout

    def run_kubernetes(self, release: str) -> None:
        """Write the stack file: the repository's, on this lab."""
        stack = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
        ports = {"apiServer": 16945, "etcd": 12945, "registry": 15945}
        stack["config"]["divvy:lab"] |= {
            "network": "10.145.0.0/16",
            "ports": ports,
            "kubernetes": release,
        }
        cluster = stack["config"]["divvy:cluster"]
        cluster["kubeconfig"] = str(self.kubeconfig)
        base = f"{REGISTRY}/divvy/base:bookworm"
        cluster["plugin"]["image"] = {"registry": REGISTRY, "base": base, "insecure": True}
        (self.folder / "stacks/Pulumi.lab.yaml").write_text(yaml.safe_dump(stack, sort_keys=False))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Upgraded]:
    """Give a fresh lab of the older Kubernetes with Divvy deployed; it is down afterwards."""
    (tmp_path / "stacks").mkdir()
    project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
    project["main"] = str(REPOSITORY)
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    lab = Upgraded(tmp_path, STATES / f"divvy-{NAME}/kubeconfig")
    lab.run_kubernetes("1.36")
    lab.divvy("lab", "down")
    try:
        lab.divvy("lab", "up", "--file=stacks/Pulumi.lab.yaml")
        lab.divvy("up", "--stack=lab", "--yes")
        yield lab
        lab.lab.api.close()
    finally:
        lab.divvy("lab", "down")


def _pod(name: str, node: str, limits: dict[str, int]) -> dict[str, Any]:
    manifest = pod(name, GPU, node=node)
    (container,) = manifest["spec"]["containers"]
    container |= {"image": f"{REGISTRY}/divvy/base:bookworm", "resources": {"limits": limits}}
    return manifest


def _containers(cluster: Upgraded) -> dict[str, tuple[str, int]]:
    """Return id and restarts of the container of each pod."""
    containers = {}
    for running in cluster.lab.get("pods")["items"]:
        (status,) = running["status"]["containerStatuses"]
        containers[running["metadata"]["name"]] = status["containerID"], status["restartCount"]
    return containers


def _devices(cluster: Upgraded) -> dict[str, str]:
    """Return what the driver lists in each pod."""
    names = [running["metadata"]["name"] for running in cluster.lab.get("pods")["items"]]
    return {name: cluster.lab.kubectl("exec", name, "--", "nvidia-smi", "-L") for name in names}


def _claims(cluster: Upgraded) -> set[str]:
    return {claim["metadata"]["uid"] for claim in cluster.lab.get("resourceclaims")["items"]}


def _kubelets(cluster: Upgraded) -> Counter[str]:
    nodes = cluster.lab.get("nodes")["items"]
    return Counter(node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes)


def test_keeps_what_pods_hold_while_kubernetes_is_upgraded(cluster: Upgraded) -> None:
    assert _kubelets(cluster) == {OLD: 6}
    pods = [_pod(f"pod-{n}", node, limits) for n, (node, limits) in enumerate(REQUESTS)]
    assert len(pods) == 20
    cluster.lab.apply(*pods)
    ready = ("--all", "--for=condition=Ready", "--timeout=120s")
    cluster.lab.kubectl("wait", "pods", *ready, timeout=150)
    containers, devices = _containers(cluster), _devices(cluster)
    claims = _claims(cluster)
    assert len(claims) == 7
    assert all("UUID: " in device for device in devices.values()), devices
    cluster.divvy("verify", "--stack=lab", "--out=before")

    cluster.run_kubernetes("1.37")
    cluster.divvy("lab", "upgrade", "--file=stacks/Pulumi.lab.yaml")

    assert _kubelets(cluster) == {NEW: 6}
    assert _containers(cluster) == containers
    assert _devices(cluster) == devices
    assert _claims(cluster) == claims
    comparison = cluster.divvy(
        "verify", "--stack=lab", "--out=after", "--compare=before/report.yaml"
    )
    assert f"Kubernetes: {OLD} → {NEW}" in comparison
    assert "newly fails" not in comparison
    # What they held is free again, and can be held.
    cluster.lab.kubectl("delete", "pods", "--all", timeout=120)
    cluster.lab.until(lambda: not cluster.lab.get("resourceclaims")["items"])
    cluster.divvy("verify", "--stack=lab", "--out=freed", "--exclusive", "--select=PLUG-03,CLM-05")
