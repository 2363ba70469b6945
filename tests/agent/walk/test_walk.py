"""200 steps of the walk; ``python -m tests.agent.walk SEED STEPS`` takes more."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from divvy.lab.simulated_driver import SOURCE
from tests.agent.walk.oracle import max_kept
from tests.agent.walk.walk import walk_steps

_SEEDS, _STEPS = (15, 2026), 100


@pytest.mark.agent_process
@pytest.mark.skipif(
    not Path(SOURCE / "build/divvy-simd").exists(), reason="the simulated driver is not built"
)
@pytest.mark.parametrize("seed", _SEEDS)
def test_nothing_that_can_happen_to_a_node_breaks_a_promise(seed: int) -> None:
    asyncio.run(walk_steps(seed, _STEPS))


def test_the_oracle_knows_who_can_stay() -> None:
    parts = {"MIG-a": ("1g.5gb", 3), "MIG-b": ("1g.5gb", 6)}
    assert max_kept({"3g.20gb": 1, "1g.5gb": 3}, parts) == [("MIG-a",), ("MIG-b",)]
    assert max_kept({"7g.40gb": 1}, parts) == [()]
    assert max_kept({"4g.20gb": 1, "1g.5gb": 3}, parts) == [("MIG-b",)]
    assert max_kept({"1g.5gb": 2}, parts) == [("MIG-a", "MIG-b")]
