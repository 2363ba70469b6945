"""MIG devices that claims ask for come and go, and no others do."""

from __future__ import annotations

import asyncio

from lab.fakes.dra_kubelet import Failed
from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.scene import (
    ON_DEMAND,
    claims_node,
    names,
    nothing_left,
    tainted,
)

pytestmark = on_simulated_node


async def test_creates_a_mig_device_where_allocated_and_removes_it() -> None:
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        second = node.api.resources.allocate("second", f"{gpu}-mig-2g10gb-2")
        first = node.api.resources.allocate("first", f"{gpu}-mig-1g5gb-0")
        given = await node.claims.prepare(second)
        await node.claims.prepare(first)
        (device,) = given[second["metadata"]["uid"]]
        assert device.cdi_device_ids[0].rpartition("_")[2] in node.mig_devices()
        assert node.mig_devices().count("MIG ") == 2
        layout = {"1g.5gb": 1, "2g.10gb": 1}
        await node.until(lambda: node.status["gpus"][0].get("mig") == layout)
        await node.claims.unprepare(first, second)
        await node.until(nothing_left(node))
        # The mode stays until somebody needs it otherwise.
        await node.until(lambda: node.status["gpus"][0].get("mig") == {})
        whole = node.api.resources.allocate("whole", gpu)
        await node.claims.prepare(whole)
        await node.until(lambda: "mig" not in node.status["gpus"][0])
        await node.claims.unprepare(whole)


async def test_leaves_an_instance_alone_that_somebody_else_created() -> None:
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        ours = node.api.resources.allocate("ours", f"{gpu}-mig-1g5gb-6")
        await node.claims.prepare(ours)
        node.smi("mig", "-i", "0", "-cgi", "14", "-C")
        foreign = node.mig_devices().count("MIG-")
        assert foreign == 2
        await node.until(lambda: "no claim created" in node.status["reason"])
        await node.until(lambda: bool(tainted(node, "foreign-mig-instance")))
        starts = [
            node.api.resources.allocate(f"at-{n}", f"{gpu}-mig-2g10gb-{n}") for n in (0, 2, 4)
        ]
        prepared = [node.claims.prepare(claim) for claim in starts]
        answers = await asyncio.gather(*prepared, return_exceptions=True)
        (refused,) = [answer for answer in answers if isinstance(answer, Failed)]
        assert "MIG instances that no claim created" in str(refused)
        await node.claims.unprepare(ours, *starts)
        await node.until(lambda: node.mig_devices().count("MIG-") == 1)
