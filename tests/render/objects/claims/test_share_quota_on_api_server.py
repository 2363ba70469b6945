"""Quotas for shares: which names the API server counts, and what a cluster can require."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from divvy.cli.main import app
from tests.bare_cluster import bare_cluster
from tests.render.objects.claims.api_server import CORES, GPU, MEMORY, PERCENTAGE, ApiServer, pod
from tests.render.objects.claims.conftest import CLUSTER, applied
from tests.render.objects.claims.test_refusals_on_api_server import claim, made_by_hand

pytestmark = pytest.mark.lab
SHARES = "divvy-share.deviceclass.resource.k8s.io/devices"
LABEL = "divvy.gpu/share-quota"
NEEDS_QUOTA = (
    f"shares of GPUs need a quota: limit {SHARES} in a ResourceQuota of the namespace default, "
    f"then label the namespace {LABEL}: true"
)
REQUIRED = {**CLUSTER, "quota": {"shares": "required"}}


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with bare_cluster("resourcequota-controller") as bare, applied(bare, CLUSTER) as api_server:
        yield api_server


@pytest.fixture(scope="module")
def strict() -> Iterator[ApiServer]:
    """Give a server where namespaces need a quota for shares; ``covered`` is labelled."""
    with bare_cluster() as bare:
        server = ApiServer(bare)
        server.namespace("covered", **{LABEL: "true"})
        server.close()
        with applied(bare, REQUIRED, namespace="covered") as api_server:
            spec = claim("divvy-share")
            # Each policy takes effect on its own.
            api_server.until(
                lambda: made_by_hand(api_server, "ResourceClaim", spec, "default") == NEEDS_QUOTA
            )
            yield api_server


@pytest.fixture(scope="module")
def tenants() -> Iterator[ApiServer]:
    """Give a server where namespaces need a quota, and shares are for tenants alone."""
    value = {**REQUIRED, "profiles": {"by-size": {"claims": {"shares": {}, "tenants": ["prod"]}}}}
    with bare_cluster() as bare:
        server = ApiServer(bare)
        tenant = {"divvy.gpu/tenant": "prod"}
        server.namespace("prod", **tenant)
        server.namespace("covered", **{LABEL: "true", **tenant})
        server.close()
        with applied(bare, value, namespace="covered") as api_server:
            yield api_server


def quota(server: ApiServer, namespace: str, hard: dict[str, str]) -> None:
    """Make a quota and wait until the API server counts it."""
    metadata = {"name": "gpus", "namespace": namespace}
    server.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": hard}}
    )
    path = f"/api/v1/namespaces/{namespace}/resourcequotas/gpus"
    server.until(lambda: server.send("GET", path).body.get("status", {}).get("hard") == hard)


def test_admits_shares_under_a_quota_for_whole_gpus(server: ApiServer) -> None:
    server.namespace("whole")
    quota(server, "whole", {f"requests.{GPU}": "0"})
    assert "exceeded quota" in server.dry_run(pod({GPU: 1}, namespace="whole")).body["message"]
    everything = {GPU: 2, PERCENTAGE: 100, CORES: 100}
    assert server.dry_run(pod(everything, namespace="whole")).refusal == ""
    assert made_by_hand(server, "ResourceClaim", claim("divvy-share"), "whole") == ""


@pytest.mark.parametrize("name", [f"requests.{MEMORY}", f"limits.{MEMORY}"])
def test_counts_no_sizes_under_a_quota_of_sizes(server: ApiServer, name: str) -> None:
    namespace = server.namespace(f"sizes-{len(name)}")
    quota(server, namespace, {name: "0"})
    assert server.dry_run(pod({GPU: 1, MEMORY: 3000}, namespace=namespace)).refusal == ""


@pytest.mark.parametrize(
    "name", [f"requests.{GPU}", "divvy-gpu.deviceclass.resource.k8s.io/devices"]
)
def test_refuses_whole_gpu_claims_over_either_quota(server: ApiServer, name: str) -> None:
    namespace = server.namespace(f"claims-{len(name)}")
    quota(server, namespace, {name: "0"})
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": namespace},
        "spec": claim("divvy-gpu"),
    }
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    answer = server.send("POST", path, body, dryRun="All")
    assert f"exceeded quota: gpus, requested: {name}=1" in answer.body["message"]


@pytest.mark.parametrize(
    "name",
    [
        SHARES,
        "requests.nvidia.com/gpu.shared",
        "requests.deviceclass.resource.kubernetes.io/divvy-share",
        "count/resourceclaims.resource.k8s.io",
    ],
)
def test_refuses_shares_over_each_quota_that_covers_them(server: ApiServer, name: str) -> None:
    namespace = server.namespace(f"class-{len(name)}")
    quota(server, namespace, {name: "0"})
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": namespace},
        "spec": claim("divvy-share"),
    }
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    assert "exceeded quota" in server.send("POST", path, body, dryRun="All").body["message"]


@pytest.mark.parametrize(
    ("name", "is_counted"),
    [
        (f"requests.{GPU}", False),
        ("divvy-gpu.deviceclass.resource.k8s.io/devices", False),
        ("gpu.nvidia.com.deviceclass.resource.k8s.io/devices", True),
        ("requests.deviceclass.resource.kubernetes.io/gpu.nvidia.com", True),
    ],
)
def test_counts_claims_of_nvidias_class_under_its_name_alone(
    server: ApiServer, name: str, *, is_counted: bool
) -> None:
    namespace = server.namespace(f"nvidia-{len(name)}")
    quota(server, namespace, {name: "0"})
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "mine", "namespace": namespace},
        "spec": claim("gpu.nvidia.com"),
    }
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims"
    answer = server.send("POST", path, body, dryRun="All")
    assert ("exceeded quota" in answer.body.get("message", "")) == is_counted


def test_names_the_namespaces_whose_quota_leaves_out_shares(
    server: ApiServer, tmp_path: Any
) -> None:
    server.namespace("left-out")
    quota(server, "left-out", {f"requests.{GPU}": "4"})
    server.namespace("covered")
    quota(server, "covered", {f"requests.{GPU}": "4", SHARES: "4"})
    server.namespace("sized")
    quota(server, "sized", {f"limits.{MEMORY}": "8192", SHARES: "4"})
    stack = tmp_path / "Pulumi.x.yaml"
    stack.write_text(
        "config:\n  divvy:cluster:\n"
        f"    kubeconfig: {server.cluster.kubeconfig}\n"
        "    profiles: {sized: {claims: {shares: {}}}}\n"
        "    pools: {all: {profile: sized}}\n"
    )
    checked = CliRunner().invoke(app, ["validate", "--file", str(stack), "--live"])
    assert checked.exit_code == 0, checked.output
    assert f"left-out ({SHARES})" in checked.stderr
    assert "covered (" not in checked.stderr
    assert f"these limit nothing: sized (limits.{MEMORY})" in checked.stderr


@pytest.mark.parametrize("limits", [{MEMORY: 3000}, {GPU: 1, PERCENTAGE: 5}, {CORES: 5}])
def test_refuses_shares_without_a_required_quota(strict: ApiServer, limits: dict[str, int]) -> None:
    strict.until(lambda: strict.dry_run(pod(limits)).refusal == NEEDS_QUOTA)
    assert strict.dry_run(pod(limits, namespace="covered")).refusal == ""


def test_refuses_a_share_of_nvidias_class_without_a_required_quota(strict: ApiServer) -> None:
    sized = claim("gpu.nvidia.com")
    sized["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"memory": "4Gi"}}
    refusal = NEEDS_QUOTA.replace("divvy-share.", "gpu.nvidia.com.")
    strict.until(lambda: made_by_hand(strict, "ResourceClaim", sized, "default") == refusal)
    assert made_by_hand(strict, "ResourceClaim", sized, "covered") == ""
    whole = claim("gpu.nvidia.com")
    assert made_by_hand(strict, "ResourceClaim", whole, "default") == ""


def test_applies_a_required_quota_to_shares_alone(strict: ApiServer) -> None:
    assert strict.dry_run(pod({GPU: 1})).refusal == ""
    assert strict.dry_run(pod({"cpu": 1})).refusal == ""
    annotations = {"nvidia.com/use-gputype": "A100"}
    assert strict.dry_run(pod({GPU: 1}, annotations=annotations)).refusal == ""
    assert made_by_hand(strict, "ResourceClaim", claim("divvy-gpu"), "default") == ""


def test_refuses_handwritten_and_named_shares_without_a_required_quota(strict: ApiServer) -> None:
    for first_available in (False, True):
        spec = claim("divvy-share", first_available=first_available)
        assert made_by_hand(strict, "ResourceClaim", spec, "default") == NEEDS_QUOTA
        assert made_by_hand(strict, "ResourceClaim", spec, "covered") == ""
    assert strict.dry_run(pod({"nvidia.com/gpu.shared": 1})).refusal == NEEDS_QUOTA
    # A pod may name a template of ours itself.
    named = [{"name": "x", "resourceClaimTemplateName": "divvy-1x10m"}]
    assert strict.dry_run(pod({}, resourceClaims=named)).refusal == NEEDS_QUOTA


@pytest.mark.parametrize("where", ["limits", "requests"])
def test_refuses_shares_by_class_name_without_a_required_quota(
    strict: ApiServer, where: str
) -> None:
    asking = pod({})
    limits = {"deviceclass.resource.kubernetes.io/divvy-share": 1}
    asking["spec"]["containers"][0]["resources"] = {where: limits}
    assert strict.dry_run(asking).refusal == NEEDS_QUOTA


def test_names_the_class_of_the_namespaces_tenant_in_a_required_quota(tenants: ApiServer) -> None:
    needed = NEEDS_QUOTA.replace("divvy-share.", "divvy-share-prod.").replace("default", "prod")
    # Each policy takes effect on its own.
    tenants.until(lambda: tenants.dry_run(pod({MEMORY: 1}, namespace="prod")).refusal == needed)
    spec = claim("divvy-share-prod")
    tenants.until(lambda: made_by_hand(tenants, "ResourceClaim", spec, "prod") == needed)
    assert tenants.dry_run(pod({MEMORY: 1}, namespace="covered")).refusal == ""
