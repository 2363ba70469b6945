"""Whoever has an agent's token of one node has these rights with it, and is refused the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.render.objects.claims.api_server import ApiServer, pod

pytestmark = pytest.mark.lab
AGENT, MAKER = "divvy-system:divvy-agent", "divvy-system:divvy-claim-templates"
OURS, CLAIMS = "/api/v1/namespaces/divvy-system", "/apis/resource.k8s.io/v1"
THEIRS = "/api/v1/namespaces/default"


def named(kind: str, version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **more}


ROLE = named("Role", "rbac.authorization.k8s.io/v1", rules=[])
CLAIM = named("ResourceClaim", "resource.k8s.io/v1", spec={})
EVICTION = named("Eviction", "policy/v1")

# What a thief would try: method, path, body.
REFUSED: list[tuple[str, str, Any]] = [
    ("GET", "/api/v1/secrets", None),
    ("GET", f"{OURS}/secrets/x", None),
    ("POST", f"{THEIRS}/secrets", named("Secret")),
    ("GET", "/api/v1/pods", None),
    ("GET", f"{THEIRS}/pods/x", None),
    ("POST", f"{THEIRS}/pods", pod({})),
    ("DELETE", f"{THEIRS}/pods/x", None),
    ("POST", f"{THEIRS}/pods/x/exec?command=sh", None),
    ("POST", f"{THEIRS}/pods/x/eviction", EVICTION),
    ("POST", f"{OURS}/serviceaccounts/divvy-agent/token", {}),
    ("GET", f"{OURS}/serviceaccounts", None),
    ("GET", f"{OURS}/configmaps", None),
    ("GET", f"{OURS}/configmaps/kube-root-ca.crt", None),
    ("PUT", f"{OURS}/configmaps/divvy", named("ConfigMap")),
    ("GET", f"{THEIRS}/configmaps", None),
    ("POST", "/api/v1/nodes", named("Node")),
    ("DELETE", "/api/v1/nodes/x", None),
    ("PUT", "/api/v1/nodes/x/status", named("Node")),
    ("GET", f"{THEIRS}/events", None),
    ("POST", f"{CLAIMS}/namespaces/default/resourceclaims", CLAIM),
    ("DELETE", f"{CLAIMS}/namespaces/default/resourceclaims/x", None),
    ("PUT", f"{CLAIMS}/namespaces/default/resourceclaims/x/status", CLAIM),
    ("GET", f"{CLAIMS}/resourceclaimtemplates", None),
    ("DELETE", f"{CLAIMS}/deviceclasses/divvy-share", None),
    ("DELETE", f"{CLAIMS}/resourceslices", None),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/divvy-system/roles", ROLE),
    ("GET", "/apis/rbac.authorization.k8s.io/v1/clusterroles", None),
    ("GET", "/apis/apps/v1/namespaces/divvy-system/daemonsets", None),
    ("DELETE", "/apis/apps/v1/namespaces/divvy-system/daemonsets/divvy-agent", None),
    ("GET", "/apis/coordination.k8s.io/v1/namespaces/divvy-system/leases", None),
    (
        "DELETE",
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/divvy-agent",
        None,
    ),
]


@pytest.mark.parametrize(
    ("method", "path", "body"), REFUSED, ids=lambda argument: str(argument)[:60]
)
def test_refuses_a_stolen_agent_token(server: ApiServer, method: str, path: str, body: Any) -> None:
    params = {} if method == "GET" else {"dryRun": "All"}
    assert server.send(method, path, body, account=AGENT, node="n1", **params).status == 403


def test_admits_what_an_agent_needs(server: ApiServer) -> None:
    """Else the refusals would say nothing of the token."""
    for path in ("/api/v1/nodes", f"{CLAIMS}/resourceclaims", f"{CLAIMS}/resourceslices"):
        assert server.send("GET", path, account=AGENT, node="n1").status == 200
    assert server.send("GET", f"{OURS}/configmaps/divvy", account=AGENT, node="n1").status != 403
