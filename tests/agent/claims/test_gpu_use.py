"""How a GPU is used by claims, and what is left of it."""

from __future__ import annotations

import pytest

from divvy.agent.claims.gpu_use import GpuUse, gpu_use
from tests.agent.claim_values import (
    BY_SIZE,
    MEMORY,
    ON_DEMAND,
    claim,
    claim_record,
    held,
    offered_gpu,
)


@pytest.mark.parametrize(
    ("profile", "shares", "expected"),
    [
        (BY_SIZE, (), GpuUse("free", 0, 0, MEMORY, 100)),
        (ON_DEMAND, (), GpuUse("free", 0, 0, MEMORY, 100)),
        (BY_SIZE, (("-share", 3000, 30),), GpuUse("shares", 3000, 30, MEMORY - 3000, 70)),
        (BY_SIZE, (("-share", MEMORY, 100),), GpuUse("whole", MEMORY, 100, 0, 0)),
        (ON_DEMAND, (("", MEMORY, 100),), GpuUse("whole", MEMORY, 100, 0, 0)),
        (
            ON_DEMAND,
            (("-mig-1g5gb-0", 4864, 100), ("-mig-3g20gb-4", 19968, 100)),
            GpuUse("mig", 24832, 57, MEMORY - 24832, 43),
        ),
        (
            {"shares": {"memory": {"oversubscribe": 2}}},
            (("-share", MEMORY, 50),),
            GpuUse("shares", MEMORY, 50, MEMORY, 50),
        ),
    ],
)
def test_reports_what_claims_use_of_a_gpu(
    profile: object, shares: tuple[tuple[str, int, int], ...], expected: GpuUse
) -> None:
    gpu = offered_gpu(0, profile)
    claims = tuple(claim(f"c{at}", held(gpu, *share)) for at, share in enumerate(shares))
    assert gpu_use(claim_record(gpu, claims=claims), gpu) == expected
