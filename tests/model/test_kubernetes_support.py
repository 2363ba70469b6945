"""Which Kubernetes serves claims: refused below the floor, warned about where it is slow."""

import pytest

from divvy.model import Cluster, parse_cluster
from divvy.model.kubernetes_support import floor_problems, floor_warnings

SHARES = {"claims": {"shares": {}}}
DIVIDED = {"claims": {"shares": {}, "mig": ["1g.5gb"]}}


def _cluster(profile: dict, nodes: int = 2) -> Cluster:
    hardware = {"model": "A100-SXM4-40GB", "gpus": 4, "count": nodes}
    pools = {"p": {"hardware": hardware, "profile": "p"}}
    return parse_cluster({"profiles": {"p": profile, "other": {}}, "pools": pools})


@pytest.mark.parametrize("version", ["v1.36.1", "1.35.9", "v1.34.0-gke.7"])
def test_refuses_an_older_kubernetes_for_claims_with_the_reason(version: str) -> None:
    (problem,) = floor_problems(_cluster(SHARES), version)
    assert version in problem
    assert "(p) need 1.36.2 or newer" in problem


@pytest.mark.parametrize("version", ["v1.36.2", "v1.36.3+k3s1", "1.37.0", "v2.0.0"])
def test_serves_claims_on_newer_kubernetes(version: str) -> None:
    assert floor_problems(_cluster(SHARES), version) == ()


def test_accepts_every_kubernetes_version_without_claims() -> None:
    assert floor_problems(_cluster({}), "v1.20.0") == ()


def test_warns_about_counters_on_many_nodes_before_kubernetes_1_37() -> None:
    (warning,) = floor_warnings(_cluster(DIVIDED, 21), "v1.36.3")
    assert "21 nodes" in warning
    assert floor_warnings(_cluster(DIVIDED, 20), "v1.36.3") == ()
    assert floor_warnings(_cluster(DIVIDED, 21), "v1.37.0") == ()
    assert floor_warnings(_cluster(SHARES, 500), "v1.36.3") == ()
