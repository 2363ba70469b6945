"""Kubernetes is upgraded below pods that hold devices of every kind, on a lab of its own.

The components of Kubernetes are alone in lab/tests/cluster/test_upgrade.py; here Divvy is deployed,
and its own report says what the upgrade changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lab.cluster.tools import KUBERNETES_VERSIONS
from tests.agent.tenants import GPU, pod
from tests.conformance.upgraded_cluster import IMAGE, UpgradedCluster, upgraded_cluster

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
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


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[UpgradedCluster]:
    """Give a fresh lab of the older Kubernetes with Divvy deployed; it is down afterwards."""
    with upgraded_cluster(tmp_path, kubernetes="1.36") as cluster:
        cluster.start()
        yield cluster


def _pod(name: str, node: str, limits: dict[str, int]) -> dict[str, Any]:
    manifest = pod(name, GPU, node=node)
    (container,) = manifest["spec"]["containers"]
    container |= {"image": IMAGE, "resources": {"limits": limits}}
    return manifest


def _claims(cluster: UpgradedCluster) -> set[str]:
    return {claim["metadata"]["uid"] for claim in cluster.lab.get("resourceclaims")["items"]}


def _kubelets(cluster: UpgradedCluster) -> Counter[str]:
    nodes = cluster.lab.get("nodes")["items"]
    return Counter(node["status"]["nodeInfo"]["kubeletVersion"] for node in nodes)


def test_keeps_what_pods_hold_while_kubernetes_is_upgraded(cluster: UpgradedCluster) -> None:
    assert _kubelets(cluster) == {OLD: 6}
    pods = [_pod(f"pod-{n}", node, limits) for n, (node, limits) in enumerate(REQUESTS)]
    assert len(pods) == 20
    cluster.lab.apply(*pods)
    ready = ("--all", "--for=condition=Ready", "--timeout=120s")
    cluster.lab.kubectl("wait", "pods", *ready, timeout=150)
    containers, devices = cluster.containers(), cluster.devices()
    claims = _claims(cluster)
    assert len(claims) == 7
    assert all("UUID: " in device for device in devices.values()), devices
    cluster.verify("before")

    cluster.describe(kubernetes="1.37")
    cluster.upgrade_lab()

    assert _kubelets(cluster) == {NEW: 6}
    assert cluster.containers() == containers
    assert cluster.devices() == devices
    assert _claims(cluster) == claims
    comparison = cluster.verify("after", "--compare=before/report.yaml")
    assert f"Kubernetes: {OLD} → {NEW}" in comparison
    assert "newly fails" not in comparison
    # What they held is free again, and can be held.
    cluster.lab.kubectl("delete", "pods", "--all", timeout=120)
    cluster.lab.until(lambda: not cluster.lab.get("resourceclaims")["items"])
    cluster.verify("freed", "--exclusive", "--select=PLUG-03,CLM-05")
