"""Some steps of a driver that loses and renumbers GPUs under claims."""

from __future__ import annotations

import pytest

from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.reload_walk import walk
from tests.thoroughness import at_length

pytestmark = on_simulated_node


@pytest.mark.parametrize("seed", [1, 2026])
async def test_leads_every_container_to_its_own_gpu_whatever_the_driver_loses(seed: int) -> None:
    await walk(seed, at_length(16, 80))
