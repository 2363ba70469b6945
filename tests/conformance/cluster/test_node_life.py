"""Nodes that leave or die during a run."""

from typing import Any

from conformance.cluster.node_life import NodeLife
from divvy.kube.kind import LEASE
from tests.conformance.fake_api import refusal


def lease(name: str, second: int) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"renewTime": f"2026-01-01T00:00:{second:02}.000000Z"},
    }


class Nodes:
    """An API server with two nodes and their leases; ``renewals`` are those of the first."""

    def __init__(self, ready: str = "True", renewals: tuple[int, ...] = (1,), other: int = 1):
        conditions = [{"type": "Ready", "status": ready, "message": "kubelet stopped posting"}]
        self.node: dict[str, Any] | None = {
            "metadata": {"name": "n"},
            "status": {"conditions": conditions},
        }
        self.renewals = list(renewals)
        self.other = other

    def get(self, kind: Any, _name: str, _namespace: str | None = None) -> Any:
        if kind is LEASE:
            second = self.renewals.pop(0) if len(self.renewals) > 1 else self.renewals[0]
            return lease("n", second)
        if self.node is None:
            raise refusal(404, "not found")
        return self.node

    def find(self, *_: Any, **__: Any) -> list[Any]:
        return [lease("n", self.renewals[0]), lease("m", self.other)]


def life(nodes: Nodes, silent_seconds: float = 1) -> NodeLife:
    return NodeLife(nodes, silent_seconds)  # type: ignore[arg-type]


def test_counts_a_node_as_alive_while_its_kubelet_renews_the_lease() -> None:
    assert life(Nodes(renewals=(1, 1, 1, 2))).ended("n", wait=True) == ""
    assert life(Nodes()).ended("n", wait=False) == ""


def test_counts_a_node_as_dying_within_its_grace_period() -> None:
    silent = "n is dying or cut off: its kubelet has stopped renewing its lease"
    assert life(Nodes(other=40), 25).ended("n", wait=False) == silent
    assert life(Nodes(other=20), 25).ended("n", wait=False) == ""
    assert life(Nodes()).ended("n", wait=True) == silent


def test_names_a_node_that_turned_not_ready_or_left() -> None:
    nodes = Nodes(ready="Unknown")
    assert life(nodes).ended("n", wait=False) == (
        "n is NotReady: kubelet stopped posting (since the run began)"
    )
    nodes.node = None
    assert life(nodes).ended("n", wait=False) == "n has left the cluster during the run"
