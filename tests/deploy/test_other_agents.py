"""Two Divvys on one node are refused before the second is deployed."""

from __future__ import annotations

from typing import Any

from divvy.deploy.other_agents import nodes_of_others
from divvy.model import parse_cluster

CLUSTER = parse_cluster(
    {"profiles": {"p": {}}, "pools": {"a": {"profile": "p", "select": {"pool": "a"}}}}
)


def node(name: str, pool: str = "a") -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": {"pool": pool}}}


def agent(namespace: str, on: str | None) -> dict[str, Any]:
    spec = {"nodeName": on} if on else {}
    return {"metadata": {"name": "x", "namespace": namespace}, "spec": spec}


def test_names_the_namespaces_and_the_nodes_that_both_would_serve() -> None:
    nodes = [node(f"n{number}") for number in range(5)] + [node("z", "b")]
    agents = [agent("other", f"n{number}") for number in range(5)] + [agent("third", "n1")]
    problem = nodes_of_others(CLUSTER, agents, nodes)
    assert problem is not None
    assert "(namespace other: n0, n1, n2 and 2 more; namespace third: n1)" in problem
    assert "set `namespace` to that one to go on with its deployment" in problem


def test_allows_agents_of_this_namespace_on_other_nodes_and_without_a_node() -> None:
    agents = [agent("divvy-system", "n"), agent("other", "z"), agent("other", None)]
    assert nodes_of_others(CLUSTER, agents, [node("n"), node("z", "b")]) is None
