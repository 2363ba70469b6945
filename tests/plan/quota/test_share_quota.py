"""A quota for GPUs that leaves out shares is named, with what it lacks."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.model import Cluster, parse_cluster
from divvy.plan.quota.share_quota import (
    UncoveredQuota,
    quota_warning,
    size_quota_warning,
    uncovered_quotas,
)

SHARES = "divvy-share.deviceclass.resource.k8s.io/devices"
PROD = "divvy-share-prod.deviceclass.resource.k8s.io/devices"


def cluster(*claims: dict[str, Any], **more: Any) -> Cluster:
    profiles = {
        f"p{at}": {"claims": claims_setting} for at, claims_setting in enumerate(claims)
    } or {"p0": {}}
    return parse_cluster({"profiles": profiles, "pools": {"all": {"profile": "p0"}}, **more})


def quota(namespace: str, *names: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace}, "spec": {"hard": dict.fromkeys(names, "1")}}


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (("requests.nvidia.com/gpu",), (SHARES,)),
        (("limits.nvidia.com/gpu",), (SHARES,)),
        (("requests.nvidia.com/mig-1g.5gb",), (SHARES,)),
        # A quota of a size was HAMi's, and limits nothing here.
        (("limits.nvidia.com/gpumem",), (SHARES,)),
        (("divvy-gpu.deviceclass.resource.k8s.io/devices",), (SHARES,)),
        (("requests.nvidia.com/gpu", SHARES), ()),
        # Kubernetes counts claims of a class under these names, too.
        (("requests.nvidia.com/gpu", "requests.nvidia.com/gpu.shared"), ()),
        (("requests.nvidia.com/gpu", "count/resourceclaims.resource.k8s.io"), ()),
        (
            (
                "requests.nvidia.com/gpu",
                "requests.deviceclass.resource.kubernetes.io/divvy-share",
            ),
            (),
        ),
        (("limits.nvidia.com/gpu.shared",), (SHARES,)),
        (("requests.cpu", "pods"), ()),
        ((), ()),
    ],
)
def test_names_quotas_that_leave_out_shares(
    names: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    uncovered = uncovered_quotas(cluster({"shares": {}}), [quota("team", *names)], ())
    assert uncovered == ((UncoveredQuota("team", missing),) if missing else ())


def test_adds_up_all_quotas_of_a_namespace() -> None:
    quotas = [quota("team", "requests.nvidia.com/gpu"), quota("team", SHARES)]
    assert uncovered_quotas(cluster({"shares": {}}), quotas, ()) == ()


@pytest.mark.parametrize(
    ("scopes", "missing"),
    [
        ({"scopes": ["NotTerminating"]}, (SHARES,)),
        ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}}, (SHARES,)),
        ({"scopes": [], "scopeSelector": None}, ()),
    ],
    ids=["scopes", "a selector", "none"],
)
def test_counts_no_shares_by_a_quota_with_scopes(
    scopes: dict[str, Any], missing: tuple[str, ...]
) -> None:
    scoped = quota("team", "requests.nvidia.com/gpu", SHARES)
    scoped["spec"] |= scopes
    uncovered = uncovered_quotas(cluster({"shares": {}}), [scoped], ())
    assert uncovered == ((UncoveredQuota("team", missing),) if missing else ())


def test_requires_the_class_of_the_namespaces_tenant() -> None:
    known = cluster({"shares": {}, "tenants": ["prod", "dev"]})
    labels = {"divvy.gpu/tenant": "prod"}
    namespaces = [{"metadata": {"name": "p", "labels": labels}}, {"metadata": {"name": "q"}}]
    quotas = [quota("p", "requests.nvidia.com/gpu"), quota("q", "requests.nvidia.com/gpu")]
    # Shares are for tenants alone: a namespace without one can have none.
    assert uncovered_quotas(known, quotas, namespaces) == (UncoveredQuota("p", (PROD,)),)
    both = cluster({"shares": {}}, {"shares": {}, "tenants": ["prod"]})
    assert uncovered_quotas(both, quotas, namespaces) == (
        UncoveredQuota("p", (SHARES, PROD)),
        UncoveredQuota("q", (SHARES,)),
    )


def test_names_labelled_namespaces_without_a_quota() -> None:
    known = cluster({"shares": {}}, quota={"shares": "required"})
    labelled = {"metadata": {"name": "team", "labels": {"divvy.gpu/share-quota": "true"}}}
    other = {"metadata": {"name": "other"}}
    assert uncovered_quotas(known, (), [labelled, other]) == (UncoveredQuota("team", (SHARES,)),)
    assert uncovered_quotas(known, [quota("team", SHARES)], [labelled, other]) == ()
    assert uncovered_quotas(cluster({"shares": {}}), (), [labelled, other]) == ()


@pytest.mark.parametrize("claims", [{}, {"mig": ["1g.5gb"]}, {"shares": {}}])
def test_names_nvidias_classes_which_no_quota_of_a_resource_counts(claims: dict[str, Any]) -> None:
    known = cluster(claims, names={"classes": "nvidia"})
    nvidias = tuple(
        f"{name}.deviceclass.resource.k8s.io/devices"
        for name in ("gpu.nvidia.com", "mig.nvidia.com")
    )
    limited = ["requests.nvidia.com/gpu", SHARES]
    uncovered = uncovered_quotas(known, [quota("team", *limited)], ())
    assert uncovered == (UncoveredQuota("team", nvidias),)
    by_class = "requests.deviceclass.resource.kubernetes.io/mig.nvidia.com"
    assert uncovered_quotas(known, [quota("team", *limited, nvidias[0], by_class)], ()) == ()


def test_is_silent_without_shares() -> None:
    quotas = [quota("team", "requests.nvidia.com/gpu")]
    assert uncovered_quotas(cluster({"mig": ["1g.5gb"]}), quotas, ()) == ()
    assert uncovered_quotas(cluster(), quotas, ()) == ()
    assert quota_warning(()) is None


def test_warns_in_one_sentence() -> None:
    uncovered = [UncoveredQuota(f"team-{at}", (SHARES,)) for at in range(7)]
    warning = quota_warning(uncovered)
    assert warning is not None
    assert warning.startswith(
        "claims, which can be as large as a GPU, are not limited by the ResourceQuotas of these "
        f"namespaces; add to team-0 ({SHARES}), "
    )
    assert warning.endswith(f"team-4 ({SHARES}) and 2 more")


def test_names_quotas_of_sizes_which_limit_nothing() -> None:
    known = cluster({"shares": {}}, names={"cores": "example.org/time"})
    quotas = [
        quota("b", "limits.nvidia.com/gpumem", "requests.nvidia.com/gpu"),
        quota("a", "requests.nvidia.com/gpumem-percentage", "requests.example.org/time"),
        quota("c", SHARES, "requests.nvidia.com/gpu"),
    ]
    assert size_quota_warning(known, quotas) == (
        "ResourceQuotas count no sizes, which become claims before quotas are counted; these limit "
        "nothing: a (requests.example.org/time), a (requests.nvidia.com/gpumem-percentage), "
        "b (limits.nvidia.com/gpumem); Kueue can count MiB (divvy plan -o kueue)"
    )
    assert size_quota_warning(known, quotas[2:]) is None
