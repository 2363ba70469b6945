"""A plan for one GPU, step by step."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from divvy.agent.gpu.hardware import MigInstance
from divvy.agent.gpu.mig_plan import MigPlan
from divvy.agent.nvml.driver import Driver
from divvy.agent.nvml.mig_apply import apply_plan
from divvy.agent.nvml.process import DriverProblem
from tests.agent.devices import gpu

TWO_SLICES = 14
"""NVML's profile ID of 2g.10gb on an A100."""


class FullDriver:
    """Has no room for a compute instance."""

    def __init__(self) -> None:
        self.changes: list[tuple[str, dict[str, Any]]] = []

    async def change(self, call: str, _gpu: Any, **arguments: Any) -> dict[str, Any]:
        self.changes.append((call, arguments))
        if call == "complete_instance":
            raise DriverProblem("Insufficient Resources")
        return {}


def test_removes_what_cannot_be_completed_for_the_next_plan() -> None:
    halved = MigInstance(gi=5, profile_id=TWO_SLICES, start=4, size=2, uuid=None)
    observed = gpu(0)
    plan = MigPlan(observed.uuid, keep=(halved,), complete=(halved,))
    driver = FullDriver()
    with pytest.raises(DriverProblem, match="Insufficient Resources"):
        asyncio.run(apply_plan(cast(Driver, driver), observed, plan))
    assert driver.changes[-1] == ("destroy_instance", {"gi": 5, "uuid": None})
