"""An agent writes ResourceSlices of its own node and of no other driver."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.model.slice_specs import slice_name
from tests.render.objects.claims.api_server import Answer, ApiServer

pytestmark = pytest.mark.lab
AGENT = "divvy-system:divvy-agent"
NODE_ONLY = "a divvy agent may write ResourceSlices of its own node only"
POOL_ONLY = "a divvy agent may write ResourceSlices of its own node's pool only"
NAME_ONLY = "a divvy agent may write ResourceSlices of its own names only"
DRIVER_ONLY = "a divvy agent may write ResourceSlices of divvy.gpu only"
_PATH = "/apis/resource.k8s.io/v1/resourceslices"


def a_slice(
    name: str, *, driver: str = "divvy.gpu", pool_name: str = "n1/divvy", **where: Any
) -> dict[str, Any]:
    pool = {"name": pool_name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": pool, **(where or {"nodeName": "n1"})}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": spec,
    }


def create(server: ApiServer, body: dict[str, Any], *, node: str) -> Answer:
    return server.send("POST", _PATH, body, account=AGENT, node=node, dryRun="All")


def test_admits_slices_of_the_agents_own_node(server: ApiServer) -> None:
    server.until(lambda: create(server, a_slice("n1-divvy.gpu-x"), node="n2").refusal == NODE_ONLY)
    assert create(server, a_slice("n1-divvy.gpu-x"), node="n1").refusal == ""


def test_refuses_slices_by_a_token_without_a_node(server: ApiServer) -> None:
    assert create(server, a_slice("n1-divvy.gpu-x"), node="").refusal == NODE_ONLY


def test_refuses_an_agent_a_slice_of_all_nodes(server: ApiServer) -> None:
    assert create(server, a_slice("n1-divvy.gpu-x", allNodes=True), node="n1").refusal == NODE_ONLY


@pytest.mark.parametrize("pool", ["n2/divvy", "n1", "divvy", "n1/divvy/x"])
def test_refuses_slices_of_another_pool(server: ApiServer, pool: str) -> None:
    foreign = a_slice("n1-divvy.gpu-x", pool_name=pool)
    server.until(lambda: create(server, a_slice("n1-divvy.gpu-x"), node="n1").refusal == "")
    assert create(server, foreign, node="n1").refusal == POOL_ONLY


def test_refuses_an_agent_another_driver(server: ApiServer) -> None:
    foreign = a_slice("n1-divvy.gpu-x", driver="gpu.nvidia.com")
    assert create(server, foreign, node="n1").refusal == DRIVER_ONLY


def test_admits_changes_and_deletions_of_own_slices(server: ApiServer) -> None:
    server.apply(a_slice("n1-divvy.gpu-kept"))
    kept_slice = server.send("GET", f"{_PATH}/n1-divvy.gpu-kept").body
    kept_slice["spec"]["pool"]["generation"] = 2
    for method, body in (("PUT", kept_slice), ("DELETE", None)):
        path = f"{_PATH}/n1-divvy.gpu-kept"
        other = server.send(method, path, body, account=AGENT, node="n2", dryRun="All")
        assert other.refusal == NODE_ONLY
        own = server.send(method, path, body, account=AGENT, node="n1", dryRun="All")
        assert own.refusal == ""
    server.send("DELETE", f"{_PATH}/n1-divvy.gpu-kept")


@pytest.mark.parametrize("name", ["n2-divvy.gpu-gpus-0", "n1-gpus-0", "n1", "x-n1-divvy.gpu-0"])
def test_refuses_the_names_of_other_slices(server: ApiServer, name: str) -> None:
    """Whoever takes the name of another node's slice keeps that node from publishing it."""
    assert create(server, a_slice(name), node="n1").refusal == NAME_ONLY


def test_admits_the_names_of_nodes_with_long_names(server: ApiServer) -> None:
    node = f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 60}"
    long = slice_name(node, "gpus-0")
    assert not long.startswith(node)
    body = a_slice(long, pool_name=f"{node}/divvy", nodeName=node)
    assert create(server, body, node=node).refusal == ""
