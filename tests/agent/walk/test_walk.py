"""Some steps of the walk; ``python -m tests.agent.walk SEED STEPS`` takes more."""

from __future__ import annotations

import asyncio

import pytest

from lab.fakes.simulator import needs_simulator
from tests.agent.walk.walk import walk_steps
from tests.thoroughness import at_length

_SEEDS, _STEPS = (15, 2026), at_length(30, 100)


@pytest.mark.agent_process
@needs_simulator
@pytest.mark.parametrize("seed", _SEEDS)
def test_keeps_every_promise_whatever_happens_to_a_node(seed: int) -> None:
    asyncio.run(walk_steps(seed, _STEPS))
