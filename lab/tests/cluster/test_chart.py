"""The chart on the lab, without Pulumi: as a team installs it that deploys by helm."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from conformance.image import build_and_push as push_workloads
from divvy.image.build import build_and_push as push_agent
from divvy.model import parse_cluster, parse_document
from divvy.plan import plan
from divvy.render.chart import Chart, chart_files
from lab.cluster.tools import HELM
from tests.deployment import NAMESPACE, Deployment
from tests.render.chart.charts import (
    STACKS,
    WORKLOADS,
    documents,
    files_of,
    stack_value,
    write_chart,
)
from tests.running_lab import RunningLab

pytestmark = pytest.mark.lab
_RELEASE = "gpus"
_OF_EVERY_NAMESPACE = ("ConfigMap kube-root-ca.crt", "ServiceAccount default")


class Release:
    """A release of the lab stack's chart, and what helm says."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.lab = deployment.lab
        self.deployment = deployment
        self._home = folder / "home"
        where = (deployment.registry, deployment.base_image)
        agent = push_agent(*where, insecure=True)
        workloads = push_workloads(*where, insecure=True)
        chart = Chart("lab", "0.1.0", "0.1.0", agent, workloads)
        self.chart = write_chart(
            folder / "divvy", chart_files(parse_document(deployment.cluster), chart)
        )

    def helm(self, command: str, *arguments: object) -> str:
        done = subprocess.run(
            [
                str(HELM.bin / "helm"),
                command,
                _RELEASE,
                *map(str, arguments),
                f"--namespace={NAMESPACE}",
                f"--kubeconfig={self.lab.kubeconfig}",
            ],
            env={**os.environ, "HOME": str(self._home)},
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def agents(self) -> dict[str, tuple[str, int]]:
        """Return UID and restarts of every agent."""
        selector = "--selector=app.kubernetes.io/component=agent"
        pods = self.lab.get("pods", f"--namespace={NAMESPACE}", selector)["items"]
        return {
            pod["metadata"]["name"]: (
                pod["metadata"]["uid"],
                sum(
                    container_status["restartCount"]
                    for container_status in pod["status"]["containerStatuses"]
                ),
            )
            for pod in pods
        }

    def planned(self, pool: str = "", profile: str = "") -> dict[str, dict[str, int]]:
        """Return what every node should offer, with another profile for one pool."""
        cluster = {**self.deployment.cluster}
        if pool:
            changed = {**cluster["pools"][pool], "profile": profile}
            cluster["pools"] = {**cluster["pools"], pool: changed}
        nodes = {"research": "gpu-a100", "training": "gpu-h100", "notebooks": "gpu-t4"}
        pools = plan(parse_cluster(cluster), "lab").pools
        return {nodes[pool.name]: dict(pool.node.per_node) for pool in pools if pool.node}

    def wait_for(self, planned: dict[str, dict[str, int]]) -> None:
        offered = self.deployment.offered
        self.lab.until(lambda: all(offered(node) == count for node, count in planned.items()), 60)


@pytest.fixture(scope="module")
def release(lab: RunningLab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    """Install the chart where nothing of Divvy is; leave no namespace."""
    folder = tmp_path_factory.mktemp("chart")
    installed = Release(Deployment(lab, folder / "project"), folder)
    yield installed
    lab.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", "--timeout=60s")


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_installs_objects_that_the_api_server_accepts(
    path: Path, lab: RunningLab, tmp_path: Path
) -> None:
    chart = write_chart(tmp_path / "divvy", files_of(stack_value(path), WORKLOADS))
    # The lab has not the kinds of the Prometheus Operator.
    unknown = "--set=observability.serviceMonitor=false,observability.alerts=false"
    objects = documents(chart, "default", unknown)
    whole = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": objects})
    dry_run = ("--dry-run=server", "--validate=strict", "--filename=-")
    output = lab.kubectl("apply", *dry_run, stdin=whole)
    assert output.count("(server dry run)") == len(objects)


def test_installs_upgrades_and_uninstalls_a_release(release: Release) -> None:
    notes = release.helm("install", release.chart, "--create-namespace", "--wait")
    assert "pod-security.kubernetes.io/enforce=privileged" in notes
    assert "pool research: 1 node × 4 × A100-SXM4-40GB, profile split" in notes
    release.wait_for(release.planned())

    tested = release.helm("test")
    resources = {name for node in release.planned().values() for name in node}
    assert tested.count("Phase:          Succeeded") == len(resources)
    proven = release.deployment.divvy("verify", "--stack=lab", "--select=INST,NODE-01,PLUG")
    assert " 0 failed" in proven

    before = release.agents()
    release.lab.kubectl("label", "ns", NAMESPACE, "pod-security.kubernetes.io/enforce=privileged")
    notes = release.helm("upgrade", release.chart, "--set=pools.research.profile=seven")
    assert "pool research: profile seven" in notes
    assert "Pod Security" not in notes
    release.wait_for(release.planned("research", "seven"))
    assert release.agents() == before

    release.helm("rollback", "1")
    release.wait_for(release.planned())
    assert release.agents() == before

    release.helm("uninstall", "--wait")
    release.lab.until(lambda: not left(release.lab))


def left(lab: RunningLab) -> list[str]:
    """Return what is left of Divvy anywhere, and of anything in its namespace."""
    remains = []
    for namespaced in ("true", "false"):
        listed = ("--verbs=list", "--output=name", f"--namespaced={namespaced}")
        kinds = [
            kind
            for kind in lab.kubectl("api-resources", *listed).split()
            if not kind.startswith("events") and "metrics.k8s.io" not in kind
        ]
        where = [f"--namespace={NAMESPACE}"]
        if namespaced == "false":
            where = ["--selector=app.kubernetes.io/name=divvy"]
        items: list[Any] = lab.get(",".join(kinds), *where)["items"]
        remains += [f"{obj['kind']} {obj['metadata']['name']}" for obj in items]
    # What every namespace has.
    return [remaining for remaining in remains if remaining not in _OF_EVERY_NAMESPACE]
