"""Kubernetes is upgraded below pods that hold devices of every kind, on a lab of its own.

The components of Kubernetes are alone in tests/lab/test_upgrade.py; here Divvy is deployed, and
its own report says what the upgrade changed.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.lab.paths import REPOSITORY, STATES
from divvy.lab.tools import KUBERNETES_VERSIONS, kubernetes
from tests.divvy_command import run_divvy

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
    *[("gpu-t4", {"nvidia.com/gpu.shared": 1})] * 4,
    ("gpu-by-size", {"nvidia.com/gpu": 1}),
    *[("gpu-by-size", {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 6000})] * 3,
    *[("gpu-on-demand", {"nvidia.com/mig-1g.5gb": 1})] * 2,
    ("gpu-on-demand", {"nvidia.com/mig-2g.10gb": 1}),
]


@dataclass(frozen=True)
class Cluster:
    """The lab's cluster, with the commands of its administrator."""

    folder: Path
    kubeconfig: Path

    def divvy(self, *arguments: str, expect: int = 0) -> str:
        """Run divvy for this lab and its stack."""
        done = run_divvy(
            *arguments,
            folder=self.folder,
            expect=expect,
            timeout=900,
            environment={"DIVVY_LAB": NAME},
        )
        return done.stdout

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

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator; fail with its words."""
        command = [str(kubernetes("1.37").bin / "kubectl"), f"--kubeconfig={self.kubeconfig}"]
        done = subprocess.run(
            [*command, *arguments],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def get(self, *arguments: str) -> Any:
        """Return what kubectl get answers."""
        return json.loads(self.kubectl("get", *arguments, "--output=json"))


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Give a fresh lab of the older Kubernetes with Divvy deployed; it is down afterwards."""
    (tmp_path / "stacks").mkdir()
    project = yaml.safe_load((REPOSITORY / "Pulumi.yaml").read_text())
    project["main"] = str(REPOSITORY)
    (tmp_path / "Pulumi.yaml").write_text(yaml.safe_dump(project))
    lab = Cluster(tmp_path, STATES / f"divvy-{NAME}/kubeconfig")
    lab.run_kubernetes("1.36")
    lab.divvy("lab", "down")
    try:
        lab.divvy("lab", "up", "--file=stacks/Pulumi.lab.yaml")
        lab.divvy("up", "--stack=lab", "--yes")
        yield lab
    finally:
        lab.divvy("lab", "down")


def _pod(name: str, node: str, limits: dict[str, int]) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": f"{REGISTRY}/divvy/base:bookworm",
        "command": ["sleep", "infinity"],
        "resources": {"limits": limits},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "nodeSelector": {"kubernetes.io/hostname": node},
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
        },
    }


def _containers(cluster: Cluster) -> dict[str, tuple[str, int]]:
    """Return of each pod its container's id and restarts."""
    containers = {}
    for pod in cluster.get("pods")["items"]:
        (status,) = pod["status"]["containerStatuses"]
        containers[pod["metadata"]["name"]] = status["containerID"], status["restartCount"]
    return containers


def _devices(cluster: Cluster) -> dict[str, str]:
    """Return what the driver lists in each pod."""
    return {
        pod["metadata"]["name"]: cluster.kubectl(
            "exec", pod["metadata"]["name"], "--", "nvidia-smi", "-L"
        )
        for pod in cluster.get("pods")["items"]
    }


def _kubelets(cluster: Cluster) -> Counter[str]:
    nodes = cluster.get("nodes")["items"]
    return Counter(node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes)


def test_keeps_what_pods_hold_while_kubernetes_is_upgraded(cluster: Cluster) -> None:
    assert _kubelets(cluster) == {OLD: 6}
    pods = [_pod(f"pod-{n}", node, limits) for n, (node, limits) in enumerate(REQUESTS)]
    assert len(pods) == 20
    for pod in pods:
        cluster.kubectl("create", "--filename=-", stdin=json.dumps(pod))
    cluster.kubectl("wait", "pods", "--all", "--for=condition=Ready", "--timeout=120s")
    containers, devices = _containers(cluster), _devices(cluster)
    claims = {claim["metadata"]["uid"] for claim in cluster.get("resourceclaims")["items"]}
    assert len(claims) == 7
    assert all("UUID: " in device for device in devices.values()), devices
    cluster.divvy("verify", "--stack=lab", "--out=before")

    cluster.run_kubernetes("1.37")
    cluster.divvy("lab", "upgrade", "--file=stacks/Pulumi.lab.yaml")

    assert _kubelets(cluster) == {NEW: 6}
    assert _containers(cluster) == containers
    assert _devices(cluster) == devices
    assert {claim["metadata"]["uid"] for claim in cluster.get("resourceclaims")["items"]} == claims
    comparison = cluster.divvy(
        "verify", "--stack=lab", "--out=after", "--compare=before/report.yaml"
    )
    assert f"Kubernetes: {OLD} → {NEW}" in comparison
    assert "newly fails" not in comparison
    # What they held is free again, and can be held.
    cluster.kubectl("delete", "pods", "--all")
    deadline = time.monotonic() + 60
    while cluster.get("resourceclaims")["items"]:
        assert time.monotonic() < deadline, "claims are still there a minute after their pods"
        time.sleep(1)
    cluster.divvy("verify", "--stack=lab", "--out=freed", "--exclusive", "--select=PLUG-03,CLM-05")
