"""What ResourceQuotas admit of the claim that the scheduler creates for extended resources."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from divvy.model import parse_cluster
from divvy.plan.fit.fitting import claim_kinds
from divvy.plan.quota.claim_quota import ClaimQuotas, Usage, usage_of_claim, usage_of_resources

KINDS = claim_kinds(
    parse_cluster(
        {
            "profiles": {"on-demand": {"claims": {"shares": {}, "mig": ["1g.5gb"]}}},
            "pools": {"all": {"profile": "on-demand"}},
        }
    )
)
GPU = "divvy-gpu.deviceclass.resource.k8s.io/devices"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io"
COUNT = "count/resourceclaims.resource.k8s.io"
NAMES = {"gpu": "nvidia.com/gpu", "share": "nvidia.com/gpu.shared", "mig": "nvidia.com/mig-1g.5gb"}


def quota(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    meta = {"namespace": "team", "name": "gpus"}
    return {"metadata": meta, "spec": spec, "status": {"hard": hard, "used": used}}


def asks(**numbers: int) -> Usage:
    requests = {NAMES.get(name, name): Fraction(number) for name, number in numbers.items()}
    return usage_of_resources(requests, KINDS)


def refusal(usage: Usage, *quotas: dict[str, Any], freed: Usage | None = None) -> str:
    return ClaimQuotas(quotas).refusal("team", usage, freed or {})


@pytest.mark.parametrize(
    ("name", "usage"),
    [
        (GPU, asks(gpu=1)),
        ("divvy-share.deviceclass.resource.k8s.io/devices", asks(share=1)),
        ("divvy-mig-1g.5gb.deviceclass.resource.k8s.io/devices", asks(mig=1)),
        (f"{IMPLICIT}/divvy-gpu", asks(gpu=1)),
        (f"{IMPLICIT}/divvy-mig-1g.5gb", asks(mig=1)),
        (COUNT, asks(share=1)),
    ],
)
def test_refuses_what_a_quota_has_no_room_for(name: str, usage: Usage) -> None:
    full = quota({name: "3"}, {name: "3"})
    assert refusal(usage, full) == f"the ResourceQuota gpus has no {name} left for its claim"
    assert not ClaimQuotas([full]).refusal("other", usage, {})
    assert not refusal(usage, quota({name: "3"}, {name: "2"}))
    assert not refusal(usage, full, freed={name: 1})


def test_counts_each_device_of_a_class_and_one_claim_for_all() -> None:
    listed = quota({GPU: "5", COUNT: "1"}, {GPU: "2", COUNT: "0"})
    assert not refusal(asks(gpu=3, share=2), listed)
    assert GPU in refusal(asks(gpu=4), listed)
    assert asks(cpu=1) == {}


def test_counts_what_earlier_pods_will_have() -> None:
    quotas = ClaimQuotas([quota({GPU: "2"}, {GPU: "0"})])
    quotas.charge("team", asks(gpu=1))
    assert not quotas.refusal("team", asks(gpu=1), {})
    quotas.charge("team", asks(gpu=1))
    quotas.charge("other", asks(gpu=1))
    assert quotas.refusal("team", asks(gpu=1), {})


def test_leaves_to_admission_what_a_pod_was_admitted_with() -> None:
    """The quota of the resource itself counts the pod, and has done so when it was created."""
    name = "requests.nvidia.com/gpu"
    assert not refusal(asks(gpu=1), quota({name: "1"}, {name: "1"}))


def test_ignores_quotas_that_count_no_claims() -> None:
    full = {COUNT: "0"}
    assert refusal(asks(gpu=1), quota(full, full))
    assert not refusal(asks(gpu=1), quota(full, full, scopes=["BestEffort"]))
    selector = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "Exists"}]}
    assert not refusal(asks(gpu=1), quota(full, full, scopeSelector=selector))


def test_refuses_while_a_quota_has_not_been_counted() -> None:
    """As the admission does, which reads the status alone: a quota without one admits all."""
    other = "other.deviceclass.resource.k8s.io/devices"
    assert refusal(asks(gpu=1), quota({GPU: "9", other: "9"}, {GPU: "0"})) == (
        f"the ResourceQuota gpus has not been counted yet for {other}"
    )
    assert not refusal(asks(gpu=1), quota({GPU: "9", "pods": "9"}, {GPU: "0"}))


def test_counts_a_claim_as_the_api_server_does() -> None:
    def claim(*requests: dict[str, Any]) -> dict[str, Any]:
        return {"spec": {"devices": {"requests": list(requests)}}}

    two = {"exactly": {"deviceClassName": "divvy-gpu", "count": 2}}
    single = {"exactly": {"deviceClassName": "divvy-gpu"}}
    both = {GPU: 3, f"{IMPLICIT}/divvy-gpu": 3, COUNT: 1}
    assert usage_of_claim(claim(two, single)) == both
    assert usage_of_claim({"spec": {}}) == {COUNT: 1}
    options = {"firstAvailable": [two["exactly"], single["exactly"]]}
    assert usage_of_claim(claim(options, single)) == both
    everything = {"exactly": {"deviceClassName": "divvy-gpu", "allocationMode": "All"}}
    assert usage_of_claim(claim(everything))[GPU] == 32


def test_refuses_what_a_quota_limits_that_has_no_status_yet() -> None:
    """The quota controller writes the status a moment later: until then nothing is known."""

    def new(hard: dict[str, str]) -> dict[str, Any]:
        return {"metadata": {"namespace": "team", "name": "gpus"}, "spec": {"hard": hard}}

    words = f"the ResourceQuota gpus has not been counted yet for {GPU}"
    assert refusal(asks(gpu=1), new({GPU: "1", "pods": "5"})) == words
    assert refusal(asks(gpu=1), {**new({GPU: "1"}), "status": {}}) == words
    assert not refusal(asks(gpu=1), new({"pods": "5"}))
