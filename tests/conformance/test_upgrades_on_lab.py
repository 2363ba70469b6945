"""containerd, the driver and Divvy's agent are upgraded below pods that hold devices.

The whole suite runs once containerd and the driver are new, then after each upgrade, and is
compared with the run before: it names what the upgrade has broken, and nothing else.
"""

from __future__ import annotations

import copy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from divvy.reports.comparison import Comparison
from lab.cluster.paths import REPOSITORY
from tests.conformance.upgraded_cluster import IMAGE, UpgradedCluster, upgraded_cluster

pytestmark = [pytest.mark.lab, pytest.mark.timeout(3600)]
H100 = "gpu-h100"
# What holds devices meanwhile: by the device plugin, by claims of a size, by claims of MIG devices.
# T4s are left free: whose replicas are held are not checked.
HOLDERS: dict[str, dict[str, Any]] = {
    "gpu-h100": {"nvidia.com/gpu": 1},
    "gpu-by-size": {"nvidia.com/gpu": 1, "nvidia.com/gpumem": 6000},
    "gpu-on-demand": {"nvidia.com/mig-1g.5gb": 1},
}
NODES = {*HOLDERS, "gpu-t4"}
OTHERS = shutil.ignore_patterns(
    ".git", ".venv", "__pycache__", "out", "build", ".hypothesis", ".*_cache"
)
READ_ONLY = '_SOCKETS = (*_READ_ONLY, "noexec")'


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[UpgradedCluster]:
    """Give a fresh lab of four GPU nodes with Divvy deployed; it is down afterwards."""
    stack = yaml.safe_load((REPOSITORY / "stacks/Pulumi.lab.yaml").read_text())
    nodes = [node for node in stack["config"]["divvy:lab"]["nodes"] if node["name"] in NODES]
    with upgraded_cluster(tmp_path, nodes=nodes) as cluster:
        definition = cluster.stack["config"]["divvy:cluster"]
        del definition["pools"]["research"]
        cluster.write()
        cluster.start()
        yield cluster


def test_names_what_an_upgrade_breaks_below_pods(cluster: UpgradedCluster) -> None:
    cluster.lab.apply(*(_deployment(node, limits) for node, limits in HOLDERS.items()))
    _wait_available(cluster)
    containers, devices = cluster.containers(), cluster.devices()
    cluster.verify("first")

    # containerd, below running pods.
    _describe_nodes(cluster, version="2.4")
    cluster.upgrade_lab()
    assert (cluster.containers(), cluster.devices()) == (containers, devices)

    # The driver, which takes a boot: the pods are started again, and hold devices again.
    _upgrade_driver(cluster, "580.65.06")
    cluster.verify("driver-580", "--compare=first/report.yaml")
    comparison = cluster.compare("first", "driver-580")
    assert comparison.outcomes_are_the_same, comparison
    assert _versions(comparison, "containerRuntime") == {
        ("containerd://2.3.7", "containerd://2.4.2", tuple(sorted(NODES)))
    }
    assert _versions(comparison, "driver") == {("550.163.01", "580.65.06", tuple(sorted(NODES)))}

    # The next one, without the Fabric Manager of its version.
    _upgrade_driver(cluster, "615.71.09")
    cluster.divvy("lab", "exec", H100, "--", "divvy-sim", "fault", "no-fabric", "1")
    text = cluster.verify("driver-615", "--compare=driver-580/report.yaml", expect=1)
    assert _newly_failing(cluster, "driver-580", "driver-615") == {("NODE-08", H100)}
    assert "NODE-08" in text
    cluster.divvy("lab", "exec", H100, "--", "divvy-sim", "fault", "clear", "1")

    # Divvy's agent, by a release that gives containers a folder of the host writable.
    containers, devices = cluster.containers(), cluster.devices()
    cluster.sources = _next_release(cluster.folder)
    edits = cluster.sources / "divvy/agent/inject/container_edits.py"
    assert READ_ONLY in edits.read_text()
    edits.write_text(edits.read_text().replace(READ_ONLY, READ_ONLY.replace("ONLY,", "ONLY[1:],")))
    _upgrade_agent(cluster)
    assert (cluster.containers(), cluster.devices()) == (containers, devices)
    cluster.verify("agent", "--compare=driver-615/report.yaml", expect=1)
    newly_failing = _newly_failing(cluster, "driver-615", "agent")
    assert {check for check, _ in newly_failing} == {"ISO-09"}
    agents = _versions(cluster.compare("driver-615", "agent"), "agentDigest")
    assert {nodes for _, _, nodes in agents} == {tuple(sorted(NODES))}

    # The release after it repairs that, below the same pods.
    edits.write_text((REPOSITORY / "divvy/agent/inject/container_edits.py").read_text())
    _upgrade_agent(cluster)
    assert (cluster.containers(), cluster.devices()) == (containers, devices)
    cluster.verify("agent-repaired", "--compare=agent/report.yaml")
    repaired = cluster.compare("agent", "agent-repaired").newly_passing
    assert {(change.check, change.case) for change in repaired} == newly_failing


def _deployment(node: str, limits: dict[str, Any]) -> dict[str, Any]:
    labels = {"app": f"on-{node}"}
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["/bin/sh", "-c", "trap 'exit 0' TERM; sleep infinity & wait"],
        "resources": {"limits": limits},
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": f"on-{node}"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def _wait_available(cluster: UpgradedCluster) -> None:
    for node in HOLDERS:
        cluster.lab.kubectl(
            "rollout", "status", f"deployment/on-{node}", "--timeout=180s", timeout=200
        )


def _describe_nodes(cluster: UpgradedCluster, **containerd: str) -> None:
    nodes = copy.deepcopy(cluster.section["nodes"])
    for node in nodes:
        node["containerd"] = {**node.get("containerd", {}), **containerd}
    cluster.describe(nodes=nodes)


def _upgrade_driver(cluster: UpgradedCluster, version: str) -> None:
    """Boot the nodes into another driver, and promise it in the stack file."""
    nodes = [{**node, "driverVersion": version} for node in cluster.section["nodes"]]
    cluster.stack["config"]["divvy:cluster"]["driver"]["version"] = version
    cluster.describe(nodes=nodes)
    cluster.upgrade_lab()
    cluster.divvy("up", "--stack=lab", "--yes")
    _wait_available(cluster)
    # What the kubelet refused while the agent was starting again is in the way of no check.
    cluster.lab.kubectl("delete", "pods", "--field-selector=status.phase=Failed")


def _next_release(folder: Path) -> Path:
    """Return a copy of these sources."""
    return Path(shutil.copytree(REPOSITORY, folder / "next", ignore=OTHERS))


def _upgrade_agent(cluster: UpgradedCluster) -> None:
    cluster.write()
    cluster.divvy("up", "--stack=lab", "--yes")


def _newly_failing(cluster: UpgradedCluster, before: str, after: str) -> set[tuple[str, str]]:
    return {(change.check, change.case) for change in cluster.compare(before, after).newly_failing}


def _versions(comparison: Comparison, name: str) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (change.before, change.after, tuple(sorted(change.nodes)))
        for change in comparison.versions
        if change.name == name
    }
