"""What runs leave behind: taken back when the run is dead, left alone when it is alive."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from conformance.cluster import run_lease
from conformance.cluster.namespaces import (
    PodNamespaces,
    clear_leftovers,
    pod_namespaces,
    profile_on,
)
from conformance.skips import CheckSkipped
from divvy.kube.errors import ApiError
from divvy.kube.kind import LEASE, NAMESPACE, NODE, PRIORITY_CLASS
from divvy.model.api_names import CONFORMANCE_CORDON, CONFORMANCE_PROFILE, PROFILE_LABEL
from tests.conformance.fake_api import FakeApi, refusal

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
    # A second kill in between leaves the namespace, by which the priority class is found.
    assert cluster.deleted == [RUN, f"{RUN}-restricted"]


class Recording(FakeApi):
    """Keeps what there is of namespaces and priority classes after each write."""

    def __init__(self) -> None:
        super().__init__()
        self.left: list[frozenset[str]] = [frozenset()]

    def create(self, kind: Any, obj: Any) -> Any:
        if kind in (NAMESPACE, PRIORITY_CLASS):
            self.left.append(self.left[-1] | {f"{kind.kind} {obj['metadata']['name']}"})
        return super().create(kind, obj)

    def delete(self, kind: Any, name: str, **_options: Any) -> None:
        self.left.append(self.left[-1] - {f"{kind.kind} {name}"})

    def get(self, kind: Any, name: str, _namespace: str = "") -> Any:
        return {"metadata": {"name": name}}


def test_leaves_no_priority_class_without_a_namespace_whenever_it_is_killed() -> None:
    api = Recording()
    namespaces = PodNamespaces(api, "image", "divvy-system")  # type: ignore[arg-type]
    namespaces.at("restricted")
    namespaces.at("baseline")
    namespaces.remove()
    assert len(api.left) == 7
    assert api.left[-1] == frozenset()
    for left in api.left:
        kinds = {name.partition(" ")[0] for name in left}
        assert kinds in (set(), {"Namespace"}, {"Namespace", "PriorityClass"})


def test_creates_what_a_namespace_lacked_after_a_refusal() -> None:
    api = Recording()
    refused = {PRIORITY_CLASS, LEASE}
    create = api.create

    def create_later(kind: Any, obj: Any) -> Any:
        if kind in refused:
            refused.discard(kind)
            raise refusal(503, "not now")
        return create(kind, obj)

    api.create = create_later  # type: ignore[method-assign]
    namespaces = PodNamespaces(api, "image", "divvy-system")  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(ApiError, match="not now"):
            namespaces.at("restricted")
    namespaces.at("restricted")
    kinds = [body["kind"] for body in api.created]
    assert kinds == ["Namespace", "PriorityClass", "Lease"]
    namespaces.remove()
    assert api.left[-1] == frozenset()


def test_removes_a_namespace_that_it_never_heard_of() -> None:
    api = Recording()
    create = api.create

    def interrupted(kind: Any, obj: Any) -> Any:
        create(kind, obj)
        raise KeyboardInterrupt

    api.create = interrupted  # type: ignore[method-assign]
    namespaces = PodNamespaces(api, "image", "divvy-system")  # type: ignore[arg-type]
    with pytest.raises(KeyboardInterrupt):
        namespaces.at("restricted")
    assert len(api.left[-1]) == 1
    namespaces.remove()
    assert api.left[-1] == frozenset()


def test_removes_its_namespaces_when_it_is_stopped_just_then() -> None:
    api = Recording()
    delete = api.delete

    def interrupted(*_: Any, **__: Any) -> None:
        api.delete = delete  # type: ignore[method-assign]
        raise KeyboardInterrupt

    def run() -> None:
        with pod_namespaces(api, "image", "divvy-system") as namespaces:  # type: ignore[arg-type]
            namespaces.at("restricted")
            api.delete = interrupted  # type: ignore[method-assign]

    with pytest.raises(KeyboardInterrupt):
        run()
    assert api.left[-1] == frozenset()


@pytest.mark.parametrize("kind", [NAMESPACE, PRIORITY_CLASS, LEASE])
def test_judges_nothing_in_a_cluster_that_admits_no_namespace(kind: Any) -> None:
    api = Recording()
    create = api.create

    def ruled(asked: Any, obj: Any) -> Any:
        if asked is kind:
            raise refusal(403, "namespaces need an owner")
        return create(asked, obj)

    api.create = ruled  # type: ignore[method-assign]
    namespaces = PodNamespaces(api, "image", "divvy-system")  # type: ignore[arg-type]
    with pytest.raises(
        CheckSkipped, match="does not admit our restricted namespace: namespaces need"
    ):
        namespaces.at("restricted")
    namespaces.remove()
    assert api.left[-1] == frozenset()


def test_says_each_time_that_a_pull_secret_cannot_be_read_and_leaves_nothing() -> None:
    api = Recording()

    def refused(*_: Any) -> Any:
        raise refusal(403, "secrets is forbidden")

    api.get = refused  # type: ignore[method-assign]
    namespaces = PodNamespaces(api, "image", "divvy-system", ["registry"])  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(CheckSkipped, match="divvy-system/registry cannot be read"):
            namespaces.at("restricted")
    with pytest.raises(CheckSkipped, match="divvy-system/registry cannot be read"):
        namespaces.at("baseline")
    namespaces.remove()
    assert api.left[-1] == frozenset()


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


def test_takes_a_mark_back_that_it_never_heard_of() -> None:
    """Ctrl-C may come when the node is marked and the answer is on its way."""
    cluster = Cluster()
    patch = cluster.patch

    def interrupted(*arguments: Any, **options: Any) -> None:
        cluster.patch = patch  # type: ignore[method-assign]
        patch(*arguments, **options)
        raise KeyboardInterrupt

    cluster.patch = interrupted  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt), profile_on(cluster, "n1", "slices", RUN):  # type: ignore[arg-type]
        pytest.fail("the run goes on")
    assert cluster.node == Cluster().node


def test_takes_its_mark_back_when_it_is_stopped_just_then() -> None:
    cluster = Cluster()
    patch = cluster.patch

    def interrupted(*_: Any, **__: Any) -> None:
        cluster.patch = patch  # type: ignore[method-assign]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), profile_on(cluster, "n1", "slices", RUN):  # type: ignore[arg-type]
        cluster.patch = interrupted  # type: ignore[method-assign]
    assert cluster.node == Cluster().node


def test_keeps_an_administrators_cordon() -> None:
    cluster = Cluster()
    cluster.node["spec"]["unschedulable"] = True
    with profile_on(cluster, "n1", "slices", RUN):  # type: ignore[arg-type]
        assert CONFORMANCE_CORDON not in cluster.node["metadata"]["annotations"]
    assert cluster.node["spec"] == {"unschedulable": True}
