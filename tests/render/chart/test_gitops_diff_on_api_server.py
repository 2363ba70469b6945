"""Argo CD's and Flux's own comparisons find no difference between manifests and what is applied."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from divvy.render.exports.plain_yaml import yaml_documents
from lab.cluster.tools import GITOPS_DIFF
from tests.bare_cluster import BareCluster
from tests.render.chart.charts import IMAGE
from tests.render.chart.test_gitops_on_api_server import CLUSTERS, prometheus_cluster
from tests.render.documents import objects_of

pytestmark = pytest.mark.lab
WAYS = ["argo-cd", "argo-cd ServerSideApply", "argo-cd ServerSideDiff", "flux configured"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[BareCluster]:
    GITOPS_DIFF.build()
    with prometheus_cluster() as bare:
        yield bare


@pytest.fixture(params=CLUSTERS)
def applied(cluster: BareCluster, request: pytest.FixtureRequest) -> str:
    """Apply a cluster's manifests as both controllers do; return its name."""
    name = str(request.param)
    text = yaml_documents(objects_of(CLUSTERS[name], IMAGE))
    for manager in ("argocd-controller", "kustomize-controller"):
        apply = ("apply", "--server-side", f"--field-manager={manager}", "--filename=-")
        # Another cluster's manifests, or a test, have left other values.
        cluster.kubectl(*apply, "--force-conflicts", stdin=text)
    return name


def differences(cluster: BareCluster, name: str) -> list[Mapping[str, Any]]:
    """Return what each controller calls changed of a cluster's objects."""
    listed = {"apiVersion": "v1", "kind": "List", "items": objects_of(CLUSTERS[name], IMAGE)}
    done = subprocess.run(
        [str(GITOPS_DIFF.bin / "gitops-diff"), str(cluster.kubeconfig)],
        input=json.dumps(listed),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_finds_no_difference(cluster: BareCluster, applied: str) -> None:
    assert differences(cluster, applied) == []


@pytest.mark.parametrize(
    ("kind", "name", "patch"),
    [
        ("ConfigMap", "divvy", {"data": {"cluster.json": "{}"}}),
        (
            "DaemonSet",
            "divvy-agent",
            {"spec": {"template": {"spec": {"priorityClassName": "other"}}}},
        ),
    ],
)
def test_finds_a_field_that_somebody_else_has_changed(
    cluster: BareCluster, applied: str, kind: str, name: str, patch: dict[str, Any]
) -> None:
    place = ("--namespace=divvy-system", "--field-manager=kubectl-edit")
    cluster.kubectl("patch", kind, name, *place, f"--patch={json.dumps(patch)}")
    changed = {(item["by"], item["object"]) for item in differences(cluster, applied)}
    assert changed == {(way, f"{kind}/{name}") for way in WAYS}
