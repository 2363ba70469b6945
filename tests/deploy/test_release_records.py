"""Records of a release that cannot be read, or that nobody completed, are never "no release"."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from divvy.deploy.deployment import Deployment, Stack
from divvy.deploy.errors import DeployError
from divvy.deploy.records import _encoded
from divvy.kube.client import Client
from divvy.kube.kubeconfig import ClusterConfig
from divvy.model import parse_document

SECRETS = "/api/v1/namespaces/divvy-system/secrets"
PREFIX = "sh.helm.release.v1"


def record(revision: int, status: str, name: str = "divvy", **odd: Any) -> dict[str, Any]:
    """Return a Secret as Helm keeps it, with something odd in its release."""
    release = {
        "name": name,
        "namespace": "divvy-system",
        "version": revision,
        "info": {"status": status},
        "chart": {"metadata": {"name": "divvy", "annotations": {"divvy.gpu/deployed-by": "ana"}}},
        "manifest": "",
        **odd,
    }
    labels = {"owner": "helm", "name": name, "status": status}
    metadata = {
        "name": f"{PREFIX}.{name}.v{revision}",
        "namespace": "divvy-system",
        "resourceVersion": "7",
        "labels": labels,
    }
    return {"metadata": metadata, "data": {"release": _encoded(release)}}


def damaged(revision: int, name: str = "divvy") -> dict[str, Any]:
    """Return the same, truncated."""
    secret = record(revision, "deployed", name)
    secret["data"]["release"] = secret["data"]["release"][:40]
    return secret


class Cluster:
    """An API server that has Secrets, and keeps what is written."""

    def __init__(self) -> None:
        self.secrets: list[dict[str, Any]] = []
        self.pods: list[dict[str, Any]] = []
        self.written: list[tuple[str, str]] = []

    def answer(self, request: httpx2.Request) -> httpx2.Response:
        path = request.url.path
        if request.method == "GET" and path == SECRETS:
            body = {"metadata": {"resourceVersion": "1"}, "items": self.secrets}
            return httpx2.Response(200, json=body)
        if request.method == "GET" and path.endswith("/pods"):
            return httpx2.Response(200, json={"metadata": {}, "items": self.pods})
        if request.method == "GET":
            return httpx2.Response(404, json={"kind": "Status", "message": "not there"})
        self.written.append((request.method, path.rpartition("/")[2]))
        return httpx2.Response(200, json=json.loads(request.content))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


@contextlib.contextmanager
def deployment_of(cluster: Cluster, name: str) -> Iterator[Deployment]:
    """Yield the deployment of a stack of this name to a cluster."""
    document = parse_document({"profiles": {"whole": {}}, "pools": {"a": {"profile": "whole"}}})
    stack = Stack(name, Path(f"Pulumi.{name}.yaml"), document)
    transport = httpx2.MockTransport(cluster.answer)
    with Client(ClusterConfig("https://api.example"), transport=transport) as client:
        yield Deployment(client, stack, lambda _: None)


@pytest.fixture
def deployment(cluster: Cluster) -> Iterator[Deployment]:
    with deployment_of(cluster, "prod") as own:
        yield own


def test_refuses_by_name_what_the_client_leaves_out_as_unreadable(
    cluster: Cluster, deployment: Deployment
) -> None:
    secret = record(2, "deployed")
    secret["metadata"]["labels"] = ["name=divvy"]
    cluster.secrets = [record(1, "superseded"), secret]
    with pytest.raises(DeployError, match=rf"Secret divvy-system/{PREFIX}.divvy.v2"):
        _ = deployment.deployed


@pytest.mark.parametrize("name", ["divvy", "gpus"])
def test_refuses_by_name_a_damaged_record_of_its_release(
    cluster: Cluster, deployment: Deployment, name: str
) -> None:
    cluster.secrets = [record(1, "deployed", name), damaged(2, name)]
    with pytest.raises(DeployError) as refused:
        _ = deployment.deployed
    forget = f"kubectl delete secret -n divvy-system {PREFIX}.{name}.v2"
    assert f"Secret {PREFIX}.{name}.v2 cannot be read" in str(refused.value)
    assert forget in str(refused.value)


def test_leaves_damaged_records_of_other_releases_alone(
    cluster: Cluster, deployment: Deployment
) -> None:
    cluster.secrets = [record(1, "deployed"), damaged(1, "team")]
    deployed = deployment.deployed
    assert deployed is not None
    assert deployed.revision == 1


@pytest.mark.parametrize(
    "manifest",
    [
        "a: [",
        "kind: A",
        "{kind: A, apiVersion: v1, metadata: {}}",
        "{kind: A, apiVersion: v1, metadata: {name: [1]}}",
        "[" * 5000 + "]" * 5000,
    ],
)
def test_refuses_a_record_whose_manifest_is_none(
    cluster: Cluster, deployment: Deployment, manifest: str
) -> None:
    cluster.secrets = [record(1, "deployed", manifest=manifest)]
    with pytest.raises(DeployError, match=rf"Secret {PREFIX}.divvy.v1 .*manifest"):
        deployment._records.objects()


def test_a_pending_record_may_be_kept_under_any_name(
    cluster: Cluster, deployment: Deployment
) -> None:
    restored = record(2, "pending-upgrade")
    restored["metadata"]["name"] = "restored"
    cluster.secrets = [record(1, "deployed"), restored]
    deployment._records.settle()
    assert cluster.written == [("PUT", "restored")]


def test_an_agent_that_does_not_end_keeps_no_other_node_from_being_cleaned(
    cluster: Cluster, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("divvy.deploy.namespace._GONE_SECONDS", 0.05)
    cluster.pods = [{"metadata": {"name": "of-a-dead-node"}, "spec": {}}]
    helm: Any = SimpleNamespace(uninstall=lambda _: None)
    assert deployment.destroy(helm) == []
