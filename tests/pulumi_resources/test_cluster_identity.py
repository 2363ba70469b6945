"""A run stops in another cluster than the last one's, and where that cannot be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from divvy.pulumi_resources import cluster_identity
from divvy.pulumi_resources.cluster_identity import ClusterUnknown, SameCluster, cluster_uid


def test_refuses_another_cluster_than_in_the_last_run() -> None:
    assert not SameCluster().check({}, {"uid": "a"}).failures
    assert not SameCluster().check({"uid": "a"}, {"uid": "a"}).failures
    (failure,) = SameCluster().check({"uid": "a"}, {"uid": "b"}).failures
    assert "leads to another cluster (kube-system has uid b) than in the last run (a)" in (
        failure.reason
    )


def test_remembers_a_new_way_to_the_same_cluster() -> None:
    news = {"kubeconfig": "new", "uid": "a"}
    assert SameCluster().update("a", {"kubeconfig": "old", "uid": "a"}, news).outs == news


def test_looks_again_where_no_program_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_identity, "cluster_uid", lambda *_: "a")
    assert SameCluster().read("a", {"uid": "a"}).id == "a"
    with pytest.raises(ClusterUnknown, match="leads to another cluster"):
        SameCluster().read("b", {"uid": "b"})


def test_says_that_a_cluster_is_unknown_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ClusterUnknown, match=r"is unknown, because .* cannot be read: kubeconfig"):
        cluster_uid(str(tmp_path / "none"), None)
