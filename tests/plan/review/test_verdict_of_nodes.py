"""The verdict is never milder than what any node would go through."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from divvy.model import (
    Cluster,
    GpuFacts,
    InvalidCluster,
    NodeFacts,
    Offer,
    gpu_model,
    parse_cluster,
    pool_of,
    resolve,
    select_profile,
)
from divvy.plan import diff, plan
from divvy.plan.review.verdict import verdict

PROFILES: dict[str, Any] = {
    "whole": {},
    "slices": {"timeSlicing": {"replicas": 4}},
    "more": {"timeSlicing": {"replicas": 8}},
    "mps": {"mps": {"replicas": 4}},
    "seven": {"mig": {"1g.5gb": 7}},
    "two": {"mig": {"3g.20gb": 2}},
}
MODEL = "A100-SXM4-40GB"
GPU = GpuFacts(0, "GPU-0", gpu_model(MODEL).products[0], 40960, gpu_model(MODEL))
SELECTS: list[dict[str, str] | None] = [
    None,
    {"p": "a"},
    {"p": "b"},
    {"p": "a", "r": "1"},
    {"p": "a", "r": "2"},
]


@st.composite
def stacks(draw: st.DrawFn) -> Cluster:
    """Draw a stack of up to three pools, which select different nodes."""
    while True:
        pools: dict[str, Any] = {}
        for name in draw(st.lists(st.sampled_from("xyz"), min_size=1, max_size=3, unique=True)):
            pools[name] = {"profile": draw(st.sampled_from(list(PROFILES)))}
            select = draw(st.sampled_from(SELECTS))
            if select is not None:
                pools[name]["select"] = select
            if draw(st.booleans()):
                pools[name]["hardware"] = {"model": MODEL, "gpus": 1, "count": 2}
                if draw(st.booleans()):
                    pools[name]["overrides"] = {"n1": draw(st.sampled_from(list(PROFILES)))}
        try:
            return parse_cluster({"profiles": PROFILES, "pools": pools})
        except InvalidCluster:
            continue


def offer_of(cluster: Cluster, node: NodeFacts) -> Offer | None:
    """Return what the GPU of a node is offered as, None if the node is in no pool."""
    if pool_of(cluster, node) is None:
        return None
    (desired,) = resolve(cluster, select_profile(cluster, node), [GPU]).gpus
    (offer,) = desired.offers
    return offer


@hypothesis_settings(max_examples=300)
@given(stacks(), stacks())
def test_names_idle_gpus_wherever_a_node_needs_them(before: Cluster, after: Cluster) -> None:
    level = verdict(diff(plan(before, "s"), plan(after, "s"))).level
    for name, p, r in product(("n1", "n2"), ("a", "b", "c"), ("1", "2", "3")):
        node = NodeFacts(name, {"p": p, "r": r})
        offers = offer_of(before, node), offer_of(after, node)
        if None in offers:
            continue
        was, becomes = offers
        assert was is not None
        assert becomes is not None
        if (was.held_as, was.mig_profile) != (becomes.held_as, becomes.mig_profile):
            assert level == "GPUs must be idle", (node, was, becomes)
