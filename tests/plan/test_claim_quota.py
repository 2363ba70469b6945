"""What ResourceQuotas admit of the claim that the scheduler creates for an extended resource."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from divvy.model import parse_cluster
from divvy.plan.claim_quota import ClaimQuotas
from divvy.plan.fit.fitting import claim_kinds

CLUSTER = parse_cluster(
    {
        "profiles": {"on-demand": {"claims": {"shares": {}, "mig": ["1g.5gb"]}}},
        "pools": {"all": {"profile": "on-demand"}},
    }
)
GPU = "divvy-gpu.deviceclass.resource.k8s.io/devices"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io"
COUNT = "count/resourceclaims.resource.k8s.io"


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    meta = {"namespace": "team", "name": "gpus"}
    return {"metadata": meta, "spec": {"hard": hard, **spec}, "status": {"used": used}}


def quotas(*listed: dict[str, Any]) -> ClaimQuotas:
    return ClaimQuotas(listed, claim_kinds(CLUSTER))


def asks(**numbers: int) -> dict[str, Fraction]:
    names = {"gpu": "nvidia.com/gpu", "share": "nvidia.com/gpu.shared", "cpu": "cpu"}
    names["mig"] = "nvidia.com/mig-1g.5gb"
    return {names[name]: Fraction(number) for name, number in numbers.items()}


@pytest.mark.parametrize(
    ("name", "requests"),
    [
        (GPU, asks(gpu=1)),
        ("divvy-share.deviceclass.resource.k8s.io/devices", asks(share=1)),
        ("divvy-mig-1g.5gb.deviceclass.resource.k8s.io/devices", asks(mig=1)),
        (f"{IMPLICIT}/divvy-gpu", asks(gpu=1)),
        (f"{IMPLICIT}/divvy-mig-1g.5gb", asks(mig=1)),
        (COUNT, asks(share=1)),
    ],
)
def test_refuses_what_a_quota_has_no_room_for(name: str, requests: dict[str, Fraction]) -> None:
    full = quotas(quota({name: "3"}, {name: "3"}))
    assert full.refusal("team", requests) == (
        f"the ResourceQuota gpus has no {name} left for its claim"
    )
    assert not full.refusal("other", requests)
    assert not quotas(quota({name: "3"}, {name: "2"})).refusal("team", requests)


def test_counts_each_device_of_a_class_and_one_claim_for_all() -> None:
    listed = quota({GPU: "5", COUNT: "1"}, {GPU: "2", COUNT: "0"})
    assert not quotas(listed).refusal("team", asks(gpu=3, share=2))
    assert GPU in quotas(listed).refusal("team", asks(gpu=4))


def test_counts_what_earlier_pods_will_have() -> None:
    listed = quotas(quota({GPU: "2"}, {GPU: "0"}))
    listed.charge("team", asks(gpu=1))
    assert not listed.refusal("team", asks(gpu=1))
    listed.charge("team", asks(gpu=1))
    listed.charge("other", asks(gpu=1))
    assert listed.refusal("team", asks(gpu=1))


def test_leaves_to_admission_what_a_pod_was_admitted_with() -> None:
    """The quota of the resource itself counts the pod, and has done so when it was created."""
    name = "requests.nvidia.com/gpu"
    assert not quotas(quota({name: "1"}, {name: "1"})).refusal("team", asks(gpu=1))


def test_ignores_quotas_that_count_no_claims() -> None:
    full = {COUNT: "0"}
    assert quotas(quota(full, full)).refusal("team", asks(gpu=1))
    assert not quotas(quota(full, full)).refusal("team", asks(cpu=1))
    assert not quotas(quota(full, full, scopes=["BestEffort"])).refusal("team", asks(gpu=1))
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    assert not quotas(quota(full, full, scopeSelector=selector)).refusal("team", asks(gpu=1))


def test_refuses_while_a_new_quota_has_not_been_counted() -> None:
    """The API server refuses as long, too."""
    assert quotas(quota({GPU: "9"}, {})).refusal("team", asks(gpu=1)) == (
        f"the ResourceQuota gpus has not been counted yet for {GPU}"
    )
