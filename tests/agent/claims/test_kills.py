"""Killed at any instant, the driver goes on where it was: nothing is lost, nothing stays behind."""

from __future__ import annotations

import asyncio
import contextlib
from random import Random
from typing import Any

import pytest

from lab.fakes.agent import AgentNode
from lab.fakes.dra_kubelet import Failed
from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.scene import (
    ON_DEMAND,
    claims_node,
    names,
    nothing_left,
    specifications,
)

pytestmark = on_simulated_node
ROUNDS = 3
# Long enough for all that a call does, a change of MIG mode included.
LONGEST_SECONDS = 0.6


async def killed(node: AgentNode, call: Any, random: Random) -> None:
    """Begin a call, and end the agent in the middle of it; start another one."""
    task = asyncio.create_task(call)
    await asyncio.sleep(random.uniform(0, LONGEST_SECONDS))
    await node.kill()
    with contextlib.suppress(Failed):
        await task
    registrations = node.claims.registrations
    await node.start()
    await node.until(lambda: node.claims.registrations > registrations)


@pytest.mark.parametrize("seed", [1, 2])
async def test_leaves_nothing_behind_when_killed_at_any_point(seed: int) -> None:
    random = Random(seed)
    async with claims_node(2, ON_DEMAND) as node:
        gpu, other = names(node, "gpu")
        for _ in range(ROUNDS):
            kinds = [f"{gpu}-mig-{instance}" for instance in ("1g5gb-0", "2g10gb-2", "3g20gb-4")]
            claims = [node.api.resources.allocate(kind.rpartition("-")[0], kind) for kind in kinds]
            sized = {"memory": "3000Mi", "cores": "30"}
            claims.append(node.api.resources.allocate("share", f"{other}-share", **sized))
            random.shuffle(claims)
            await killed(node, node.claims.prepare(*claims), random)
            if random.random() < 0.7:
                # The kubelet that came back repeats; otherwise the pods were deleted by then.
                given = await node.claims.prepare(*claims)
                assert given == await node.claims.prepare(*claims)
                assert node.mig_devices().count("MIG-") == 3
                assert len(specifications(node)) == 4
            await killed(node, node.claims.unprepare(*claims), random)
            await node.claims.unprepare(*claims)
            await node.until(nothing_left(node))
