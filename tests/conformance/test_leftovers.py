"""What runs leave behind: taken back when the run is dead, left alone when it is alive."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from conformance.cluster import run_lease
from conformance.cluster.namespaces import (
    clear_leftovers,
    profile_on,
)
from divvy.kube.kind import LEASE, NAMESPACE, NODE, PRIORITY_CLASS
from divvy.model.contract import CONFORMANCE_CORDON, CONFORMANCE_PROFILE, PROFILE_LABEL
from tests.conformance.fake_api import refusal

RUN = "divvy-conformance-0a1b2c"
MARKED = {CONFORMANCE_PROFILE: f"slices {RUN}", CONFORMANCE_CORDON: "yes"}


class Cluster:
    """One node, some namespaces, and leases that are renewed where their run is alive."""

    def __init__(self, *namespaces: str, alive: bool = False, **metadata: Any) -> None:
        self.node: dict[str, Any] = {
            "metadata": {"name": "n1", "labels": {}, "annotations": {}, **metadata},
            "spec": {},
        }
        self.namespaces = list(namespaces)
        self.alive = alive
        self.deleted: list[str] = []
        self._times = itertools.count()

    def find(self, kind: Any, **_: Any) -> list[Any]:
        if kind is NODE:
            return [copy.deepcopy(self.node)]
        if kind is PRIORITY_CLASS:
            return [{"metadata": {"name": RUN}}]
        assert kind is NAMESPACE
        return [{"metadata": {"name": name}} for name in self.namespaces]

    def get(self, kind: Any, name: str, namespace: str | None = None) -> Any:
        if kind is NODE:
            return copy.deepcopy(self.node)
        if kind is not LEASE or not str(namespace).startswith(RUN):
            raise refusal(404, name)
        return {"spec": {"renewTime": next(self._times) if self.alive else 0}}

    def delete(self, _kind: Any, name: str, **_: Any) -> None:
        self.deleted.append(name)

    def patch(self, _kind: Any, _name: str, patch: Any, **_: Any) -> None:
        for key in ("labels", "annotations"):
            for name, value in patch["metadata"][key].items():
                held = self.node["metadata"][key]
                held.pop(name, None) if value is None else held.update({name: value})
        for name, value in patch.get("spec", {}).items():
            spec = self.node["spec"]
            spec.pop(name, None) if value is None else spec.update({name: value})


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lease, "LONGEST_SILENCE", 0.2)
    monkeypatch.setattr(run_lease, "_PERIOD", 0.02)
    monkeypatch.setattr(run_lease, "_BEFORE_LEASE", 0.02)


def marked(cluster: Cluster) -> Cluster:
    cluster.node["metadata"]["labels"][PROFILE_LABEL] = "slices"
    cluster.node["metadata"]["annotations"] |= MARKED
    cluster.node["spec"]["unschedulable"] = True
    return cluster


def test_cleans_up_after_a_dead_run() -> None:
    cluster = marked(Cluster(f"{RUN}-restricted"))
    clear_leftovers(cluster)  # type: ignore[arg-type]
    assert cluster.node == Cluster().node
    assert cluster.deleted == [f"{RUN}-restricted", RUN]


def test_leaves_changes_of_a_live_run_alone() -> None:
    cluster = marked(Cluster(f"{RUN}-restricted", alive=True))
    before = copy.deepcopy(cluster.node)
    with pytest.raises(pytest.UsageError, match=f"has n1 on profile slices \\({RUN}\\)"):
        clear_leftovers(cluster)  # type: ignore[arg-type]
    assert (cluster.node, cluster.deleted) == (before, [])


def test_keeps_namespaces_of_live_runs_and_of_others() -> None:
    cluster = Cluster(f"{RUN}-restricted", f"{RUN}-baseline", "a-tenants-own", alive=True)
    clear_leftovers(cluster)  # type: ignore[arg-type]
    assert cluster.deleted == []
    cluster.alive = False
    clear_leftovers(cluster)  # type: ignore[arg-type]
    assert "a-tenants-own" not in cluster.deleted
    assert len(cluster.deleted) == 3


def test_cordons_a_node_while_its_profile_is_another() -> None:
    cluster = Cluster()
    with profile_on(cluster, "n1", "slices", RUN):  # type: ignore[arg-type]
        assert cluster.node["spec"] == {"unschedulable": True}
        assert cluster.node["metadata"]["labels"] == {PROFILE_LABEL: "slices"}
        assert cluster.node["metadata"]["annotations"] == MARKED
    assert cluster.node == Cluster().node


def test_keeps_an_administrators_cordon() -> None:
    cluster = Cluster()
    cluster.node["spec"]["unschedulable"] = True
    with profile_on(cluster, "n1", "slices", RUN):  # type: ignore[arg-type]
        assert CONFORMANCE_CORDON not in cluster.node["metadata"]["annotations"]
    assert cluster.node["spec"] == {"unschedulable": True}
