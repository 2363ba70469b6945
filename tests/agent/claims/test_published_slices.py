"""What is published of a node for claims: restored, with taints, the idle GPUs first."""

from __future__ import annotations

import json
from typing import Any

from lab.fakes.agent import AgentNode
from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.scene import (
    BY_SIZE,
    ON_DEMAND,
    claims_node,
    names,
    tainted,
)

pytestmark = on_simulated_node


def generations(node: AgentNode) -> set[int]:
    return {
        resource_slice["spec"]["pool"]["generation"]
        for resource_slice in node.api.resources.slices.values()
    }


async def test_restores_slices_that_somebody_deletes_or_changes() -> None:
    def specs(slices: dict[str, Any]) -> list[Any]:
        return [slices[name]["spec"].get("devices") for name in sorted(slices)]

    async with claims_node(2, ON_DEMAND) as node:
        resources = node.api.resources
        before = json.loads(json.dumps(resources.slices))
        (generation,) = generations(node)
        for name in before:
            resources.delete(name)  # as the kubelet does when it starts
        await node.until(lambda: resources.slices.keys() == before.keys())
        assert all(
            resource_slice["metadata"]["ownerReferences"]
            for resource_slice in resources.slices.values()
        )
        name = sorted(before)[-1]
        resources.change(name, {**resources.slices[name]["spec"], "devices": []})
        await node.until(lambda: specs(resources.slices) == specs(before))
        assert generations(node) == {generation}


async def test_orders_shares_by_the_fewest_tasks() -> None:
    async with claims_node(3, BY_SIZE) as node:
        (generation,) = generations(node)
        first, second, third = names(node, "share")
        claims = []
        for at, expected in enumerate((first, second, third, first, second)):
            await node.until(lambda expected=expected: names(node, "share")[0] == expected)
            claim = node.api.resources.allocate(f"c{at}", expected, memory="1Gi", cores="5")
            await node.claims.prepare(claim)
            claims.append(claim)
        await node.until(lambda: names(node, "share")[0] == third)
        assert generations(node) == {generation}
        await node.claims.unprepare(*claims)
        await node.until(lambda: names(node, "share") == [first, second, third])


async def test_taints_a_failed_gpu_and_tells_its_pods() -> None:
    async with claims_node(2, BY_SIZE, health={"recoverAfter": "2s"}) as node:
        shares = names(node, "share")
        await node.claims.until(lambda: len(node.claims.health) == 2)
        node.simulate("fault", "xid", "1", "79")
        await node.until(lambda: tainted(node, "unhealthy") == [shares[1]])
        await node.claims.until(lambda: node.claims.health[shares[1]] == ("Unhealthy", "XID 79"))
        await node.until(lambda: not tainted(node, "unhealthy"))
        await node.claims.until(lambda: node.claims.health[shares[1]][0] == "Healthy")


async def test_taints_a_gpu_the_driver_wants_reset_and_tells_its_pods() -> None:
    async with claims_node(2, BY_SIZE, health={"recoverAfter": "2s"}) as node:
        shares = names(node, "share")
        await node.claims.until(lambda: len(node.claims.health) == 2)
        node.simulate("fault", "recovery", "1", "4")
        await node.until(lambda: tainted(node, "unhealthy") == [shares[1]], 30)
        reason = "the driver asks for a reset of the GPU once its pods have ended"
        await node.claims.until(lambda: node.claims.health[shares[1]] == ("Unhealthy", reason))
        await node.until(lambda: reason in node.status["reason"])
        node.simulate("fault", "clear", "1")
        await node.until(lambda: not tainted(node, "unhealthy"), 30)
        await node.claims.until(lambda: node.claims.health[shares[1]][0] == "Healthy")


async def test_explains_why_a_gpu_smaller_than_two_steps_has_no_shares() -> None:
    step = {"claims": {"shares": {"memory": {"step": "24Gi"}}}}
    # Where the pool says its hardware, such a step is refused.
    pools = {"all": {"profile": "p"}}
    async with claims_node(1, step, pools=pools) as node:
        assert not names(node, "share")
        why = "no shares: this GPU's 40,960 MiB is less than two steps of 24,576 MiB"
        await node.until(lambda: node.status["reason"] == f"GPU 0: {why}")
        assert node.status["state"] == "Ready"
        node.configure(BY_SIZE, pools=pools)
        await node.until(lambda: bool(names(node, "share")) and not node.status["reason"])
