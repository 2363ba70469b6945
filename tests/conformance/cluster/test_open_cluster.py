"""The nodes of the cluster under test, as the run finds them."""

from typing import Any

from conformance.cluster.open_cluster import read_nodes


def node_of_api(name: str, ready: str) -> dict[str, Any]:
    conditions = [{"type": "Ready", "status": ready, "message": "kubelet stopped posting"}]
    return {"metadata": {"name": name}, "status": {"conditions": conditions}}


def test_reports_a_node_that_is_not_ready_in_one_line() -> None:
    nodes, unready = read_nodes([node_of_api("n1", "Unknown"), node_of_api("n2", "True")])
    assert [node.name for node in nodes] == ["n1", "n2"]
    assert unready == {"n1": "n1 is NotReady: kubelet stopped posting"}
