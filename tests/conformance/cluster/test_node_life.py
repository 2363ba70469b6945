"""Nodes that leave or die during a run."""

from typing import Any

from conformance.cluster.node_life import Lease, NodeLife
from tests.conformance.fake_api import refusal


class Nodes:
    """An API server with one node and its lease."""

    def __init__(self, ready: str = "True", renewals: tuple[str, ...] = ("1",)) -> None:
        conditions = [{"type": "Ready", "status": ready, "message": "kubelet stopped posting"}]
        self.node: dict[str, Any] | None = {
            "metadata": {"name": "n"},
            "status": {"conditions": conditions},
        }
        self.renewals = list(renewals)

    def get(self, kind: Any, _name: str, _namespace: str | None = None) -> Any:
        if kind is Lease:
            time = self.renewals.pop(0) if len(self.renewals) > 1 else self.renewals[0]
            return {"spec": {"renewTime": time}}
        if self.node is None:
            raise refusal(404, "not found")
        return self.node


def life(nodes: Nodes) -> NodeLife:
    return NodeLife(nodes, silent_seconds=1)  # type: ignore[arg-type]


def test_a_node_whose_kubelet_renews_its_lease_lives() -> None:
    assert life(Nodes(renewals=("1", "1", "2"))).ended("n") == ""


def test_a_node_within_its_grace_period_is_dying() -> None:
    nodes = Nodes()
    looked = life(nodes)
    assert looked.ended("n") == (
        "n is dying or cut off: its kubelet has stopped renewing its lease"
    )
    nodes.renewals = ["2"]
    assert looked.ended("n") == ""


def test_a_node_that_has_turned_not_ready_or_left_is_named() -> None:
    nodes = Nodes(ready="Unknown")
    assert life(nodes).ended("n") == (
        "n is NotReady: kubelet stopped posting (since the run began)"
    )
    nodes.node = None
    assert life(nodes).ended("n") == "n has left the cluster during the run"
