"""The driver of claims as a process: slices, shares and whole GPUs, prepared and given back."""

from __future__ import annotations

from tests.agent.claims.scene import (
    BY_SIZE,
    NEEDS_DRIVER,
    claims_node,
    devices,
    names,
    nothing_left,
    specifications,
)
from tests.fakes.scene import play

pytestmark = NEEDS_DRIVER


def test_two_shares_of_one_claim_stand_in_one_file_of_limits() -> None:
    """What HAMi's users ask for: two GPUs, 3000 MiB and 30 % of each, in one container."""

    async def scene() -> None:
        async with claims_node(2, BY_SIZE) as node:
            one, other = names(node, "share")
            claim = node.api.resources.allocate("two", one, other, memory="3000Mi", cores="30")
            given = await node.claims.prepare(claim)
            (spec,) = specifications(node)
            assert [each.device_name for each in given[claim["metadata"]["uid"]]] == [one, other]
            assert {
                name for each in given[claim["metadata"]["uid"]] for name in each.cdi_device_ids
            } == {f"divvy.gpu/claim={each['name']}" for each in spec["devices"]}
            (limits,) = (node.folder / "state/shares").glob("*/limits")
            assert limits.read_text().count(f"memory {3000 << 20} compute share weight 30") == 2
            mounts = [
                {m["containerPath"]: m["hostPath"] for m in each["containerEdits"]["mounts"]}
                for each in spec["devices"]
            ]
            assert all(m["/usr/lib/divvy/share/limits"] == str(limits) for m in mounts)
            await node.claims.unprepare(claim)
            await node.until(nothing_left(node))
            assert len(devices(node)) == 2

    play(scene)
