"""Shares by MPS as `divvy verify` sees them before and after a driver with version 3 of MPS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from lab.cluster.paths import REPOSITORY
from tests.conformance.upgraded_cluster import IMAGE, UpgradedCluster, upgraded_cluster

pytestmark = [pytest.mark.lab, pytest.mark.timeout(1800)]
NODE, SHARE = "gpu-t4", "nvidia.com/gpu.shared"
# What a container has of its daemon's sockets; with version 3 those of its namespace alone.
PIPES, NAMESPACE = "/usr/lib/divvy/mps", "uid_0/share_"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[UpgradedCluster]:
    """Give a fresh lab of one GPU node that shares by MPS."""
    stack = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
    (node,) = (node for node in stack["config"]["divvy:lab"]["nodes"] if node["name"] == NODE)
    with upgraded_cluster(tmp_path, nodes=[node]) as cluster:
        definition = cluster.stack["config"]["divvy:cluster"]
        pools = definition["pools"]
        definition["pools"] = {"notebooks": {**pools["notebooks"], "profile": "mps"}}
        definition["profiles"] = {}
        _share_by(cluster, 4)
        _install_driver(cluster, "580.65.06")
        cluster.start()
        yield cluster


def test_proves_the_same_shares_by_either_version_of_mps(cluster: UpgradedCluster) -> None:
    select = "--select=ISO,WORK,PLUG,NODE"
    cluster.verify("before", select, "--exclusive")
    assert NAMESPACE not in _sockets(cluster)

    _install_driver(cluster, "615.71.09")
    cluster.upgrade_lab()
    cluster.divvy("up", "--stack=lab", "--yes")
    cluster.verify("after", select, "--exclusive", "--compare=before/report.yaml")
    comparison = cluster.compare("before", "after")
    assert comparison.outcomes_are_the_same, comparison
    assert NAMESPACE in _sockets(cluster)

    # A stack file that promises less than the node gives.
    _share_by(cluster, 8)
    cluster.write()
    cluster.verify("faulty", "--select=ISO-15,ISO-16", "--exclusive", expect=1)
    report = yaml.safe_load((cluster.folder / "faulty/report.yaml").read_text())
    statuses = {check["id"]: check["status"] for check in report["checks"]}
    assert statuses == {"ISO-15": "failed", "ISO-16": "failed"}


def _share_by(cluster: UpgradedCluster, replicas: int) -> None:
    profile = {"mps": {"replicas": replicas, "failRequestsGreaterThanOne": True}}
    cluster.stack["config"]["divvy:cluster"]["profiles"]["mps"] = profile


def _install_driver(cluster: UpgradedCluster, version: str) -> None:
    """Name another driver for the lab's nodes, and promise it."""
    cluster.stack["config"]["divvy:cluster"]["driver"]["version"] = version
    nodes = [{**node, "driverVersion": version} for node in cluster.section["nodes"]]
    cluster.describe(nodes=nodes)


def _sockets(cluster: UpgradedCluster) -> str:
    """Return where the folder of sockets of a container with a share is on its node."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["sleep", "infinity"],
        "resources": {"limits": {SHARE: 1}},
    }
    cluster.lab.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "share"},
            "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
        }
    )
    cluster.lab.kubectl("wait", "--for=condition=Ready", "pod/share", "--timeout=60s")
    try:
        mounts = cluster.lab.kubectl("exec", "share", "--", "cat", "/proc/self/mountinfo")
        (mount,) = (line for line in mounts.splitlines() if f" {PIPES} " in line)
        return mount.split()[3]
    finally:
        cluster.lab.kubectl("delete", "pod", "share")
