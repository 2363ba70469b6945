"""Packed shares and MIG devices find nearly all the room that a search finds."""

from __future__ import annotations

from itertools import product

import pytest

from divvy.model import NoPlacement, place
from divvy.model.gpu_models import gpu_model
from lab.benchmarks.claim_packing import (
    LIFETIMES,
    arrivals,
    pack,
    placed_by,
    placed_by_optimum,
    spread,
)
from lab.benchmarks.packing_optimum import PackingOptimum
from tests.thoroughness import at_length

MODEL = gpu_model("A100-SXM4-40GB")
NAMES = ("1g.5gb", "2g.10gb", "3g.20gb")


def test_places_95_of_100_requests_that_a_search_can_in_pack_order() -> None:
    number = at_length(1500, 10_000)
    best = sum(placed_by_optimum(arrivals(7, number, lifetime)) for lifetime in LIFETIMES)
    packed, apart = (
        sum(placed_by(rule, arrivals(7, number, lifetime)) for lifetime in LIFETIMES)
        for rule in (pack, spread)
    )
    assert packed >= 0.95 * best
    assert packed > apart


@pytest.fixture(scope="module")
def optimum() -> PackingOptimum:
    assert MODEL.mig is not None
    profiles = [profile for profile in MODEL.mig.profiles if profile.name in NAMES]
    profiles.sort(key=lambda profile: profile.name)
    return PackingOptimum(profiles, MODEL.mig.compute_slices, 40960)


def test_admits_on_one_gpu_by_search_what_the_plan_can_place(optimum: PackingOptimum) -> None:
    assert MODEL.mig is not None
    for counts in product(range(8), range(4), range(3)):
        try:
            place(MODEL.mig, dict(zip(NAMES, counts, strict=True)))
        except NoPlacement:
            feasible = False
        else:
            feasible = True
        assert optimum.holds(1, counts, ()) is feasible


@pytest.mark.parametrize(
    ("mig", "shares", "gpus"),
    [
        ((14, 0, 0), (), 2),
        ((0, 0, 3), (), 2),
        ((1, 0, 0), ((1024, 5),), 2),
        ((0, 0, 0), ((30000, 10), (20000, 10), (10000, 10), (20000, 10)), 2),
        ((0, 0, 0), ((1024, 60), (1024, 60)), 2),
        ((0, 0, 0), ((1024, 50), (1024, 50)), 1),
    ],
)
def test_needs_no_more_gpus_than_these(
    optimum: PackingOptimum,
    mig: tuple[int, ...],
    shares: tuple[tuple[int, int], ...],
    gpus: int,
) -> None:
    assert optimum.holds(gpus, mig, shares)
    assert not optimum.holds(gpus - 1, mig, shares)
