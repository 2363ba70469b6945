"""A node that boots while claims are held: their containers start again."""

from __future__ import annotations

from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.scene import (
    ON_DEMAND,
    claims_node,
    names,
    nothing_left,
    specifications,
)

pytestmark = on_simulated_node


async def test_keeps_the_name_of_a_recreated_mig_device() -> None:
    """The kubelet asks for all names that it was ever told of a claim, each time it restarts."""
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        first = node.api.resources.allocate("first", f"{gpu}-mig-1g5gb-0")
        await node.claims.prepare(first)
        held = node.api.resources.allocate("held", f"{gpu}-mig-1g5gb-5")
        given = await node.claims.prepare(held)
        await node.claims.unprepare(first)
        before = node.mig_devices()
        await node.kill()
        # The driver forgets all instances, and /run is empty.
        node.smi("mig", "-dci")
        node.smi("mig", "-dgi")
        for path in (node.folder / "cdi").iterdir():
            path.unlink()
        registrations = node.claims.registrations
        await node.start()
        await node.until(lambda: node.claims.registrations > registrations)
        assert await node.claims.prepare(held) == given
        assert node.mig_devices().count("MIG-") == 1
        assert node.mig_devices() != before, "or this test shows nothing"
        (specification,) = specifications(node)
        (name,) = given[held["metadata"]["uid"]][0].cdi_device_ids
        called = [f"divvy.gpu/claim={device['name']}" for device in specification["devices"]]
        assert called == [name]
        await node.claims.unprepare(held)
        await node.until(nothing_left(node))
