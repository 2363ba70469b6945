"""What a profile by MPS means, and which ones are refused."""

from __future__ import annotations

from typing import Any

import pytest

from divvy.model import (
    GpuFacts,
    InvalidCluster,
    Selection,
    gpu_model,
    parse_cluster,
    resolve,
)
from divvy.model.profile import clients_error
from divvy.plan import predict_node

A100 = gpu_model("A100-SXM4-40GB")
HARDWARE = {"model": "A100-SXM4-40GB", "gpus": 2, "count": 1}


def cluster(profile: Any, **more: Any) -> Any:
    pools = {"all": {"hardware": HARDWARE, "profile": "p"}}
    return parse_cluster({"profiles": {"p": profile}, "pools": pools, **more})


def offered(profile: Any, capability: tuple[int, int] = (8, 0)) -> Any:
    facts = GpuFacts(0, "GPU-0", A100.product, A100.memory_mib, A100, capability)
    return resolve(cluster(profile), Selection("all", "p", "pool", None), [facts])


def sharing(profile: Any) -> Any:
    (offer,) = offered(profile).gpus[0].offers
    return offer.sharing


def test_divides_a_gpu_into_equal_mps_parts_and_adds_up_two_replicas() -> None:
    part = sharing({"mps": {"replicas": 4}})
    assert part.by_mps
    assert (part.memory_mib, part.threads, part.action) == (10240, 25, "warn")
    pair = part.times(2)
    assert (pair.memory_mib, pair.threads) == (20480, 50)
    assert part.times(5).threads == 100


def test_takes_chosen_mps_sizes() -> None:
    limit = {"limit": "8Gi", "action": "prevent"}
    profile = {"mps": {"replicas": 3, "memoryLimit": limit, "activeThreadPercentage": 60}}
    part = sharing(profile)
    assert (part.memory_mib, part.threads, part.is_prevented) == (8192, 60, True)


@pytest.mark.parametrize(
    ("profile", "words"),
    [
        ({"mps": {"replicas": 49}}, "48 or less is expected"),
        ({"mps": {"replicas": 1}}, "2 or more is expected"),
        ({"mps": {"replicas": 2}, "mig": {"1g.5gb": 7}}, "one MPS daemon serves one whole GPU"),
        ({"mps": {"replicas": 2}, "timeSlicing": {"replicas": 2}}, "in one of these ways"),
        ({"mps": {"replicas": 2}, "claims": {"shares": {}, "tenants": ["a", "b"]}}, "`claims`"),
        (
            [
                {"devices": [0], "claims": {"shares": {}, "tenants": ["a"]}},
                {"mps": {"replicas": 2}},
            ],
            "claims",
        ),
        (
            {"mps": {"replicas": 2, "memoryLimit": {"limit": "auto", "oversubscribe": 2}}},
            "oversubscribe",
        ),
        ({"mps": {"replicas": 4, "memoryLimit": "20Gi"}}, "the last replicas would not get theirs"),
        ({"mps": {"replicas": 4, "activeThreadPercentage": 0}}, "1 or more is expected"),
        ({"mps": {"replicas": 4, "resourceName": "a/b/c"}}, "mps.resourceName"),
    ],
)
def test_refuses_by_name_what_mps_cannot_do(profile: Any, words: str) -> None:
    with pytest.raises(InvalidCluster) as refusal:
        cluster(profile)
    assert words in str(refusal.value)


def test_refuses_time_slices_and_mps_under_one_resource_name() -> None:
    rules = [{"devices": [0], "mps": {"replicas": 4}}, {"timeSlicing": {"replicas": 4}}]
    with pytest.raises(InvalidCluster) as refusal:
        cluster(rules)
    assert "1/4 of a GPU by MPS" in str(refusal.value)


def test_limits_mps_to_16_clients_before_volta() -> None:
    assert clients_error(17, (6, 1)).startswith("17 replicas are more than the 16 processes")
    assert clients_error(16, (6, 1)) == clients_error(48, (7, 0)) == ""
    old = offered({"mps": {"replicas": 17}}, (6, 1))
    assert not old.gpus[0].offers[0].sharing.is_shared
    assert "is advertised whole: 17 replicas" in old.problems[-1]


def test_prints_the_blast_radius_of_mps_in_a_plan() -> None:
    stack = cluster({"mps": {"replicas": 4}})
    words = predict_node(stack, "p", A100, 1).devices[0].guarantees
    assert "one fault ends all 4 clients of the GPU" in words.faults
    assert "MPS refuses each process more than 10240 MiB" in words.memory
    assert "25 % of the SMs" in words.compute


@pytest.mark.parametrize("alone", [True, False])
def test_prints_in_a_plan_who_can_lift_mps_limits(alone: bool) -> None:
    stack = cluster({"mps": {"replicas": 4, "failRequestsGreaterThanOne": alone}})
    words = predict_node(stack, "p", A100, 1).devices[0].guarantees
    for limit in (words.memory, words.compute):
        assert "root in any of the GPU's containers commands its daemon otherwise" in limit
    assert "unless it changes the container's variables" in words.memory
    assert ("unless it drops the container's variables" in words.compute) is not alone
    assert "by a command of root in any of its containers" in words.faults
