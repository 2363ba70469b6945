"""A checkpoint of claims that is gone or damaged: what pods hold stays theirs all the same."""

from __future__ import annotations

import pytest

from lab.fakes.agent import AgentNode
from lab.fakes.dra_kubelet import Failed
from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.scene import (
    BY_SIZE,
    ON_DEMAND,
    claims_node,
    devices,
    names,
    nothing_left,
    offered,
    record,
    specifications,
    tainted,
)

pytestmark = on_simulated_node
GPU = "nvidia.com/gpu"


async def start_without_checkpoint(node: AgentNode) -> None:
    await node.kill()
    (node.folder / "state/claims.json").unlink()
    registrations = node.claims.registrations
    await node.start()
    await node.until(lambda: node.claims.registrations > registrations, 60)


async def test_keeps_what_pods_hold_under_a_damaged_checkpoint() -> None:
    async with claims_node(1, BY_SIZE) as node:
        (share,) = names(node, "share")
        held = node.api.resources.allocate("held", share, memory="30Gi", cores="30")
        await node.claims.prepare(held)
        await node.kill()
        file = node.folder / "state/claims.json"
        whole = file.read_text()
        file.write_text(whole[: len(whole) // 2])
        await node.start()
        await node.until(lambda: "claims.json cannot be read" in node.status["reason"])
        assert len(specifications(node)) == 1
        late = node.api.resources.allocate("late", share, memory="3000Mi", cores="30")
        with pytest.raises(Failed):
            await node.claims.prepare(late)
        with pytest.raises(Failed):
            await node.claims.unprepare(held)
        assert len(specifications(node)) == 1
        assert file.read_text() == whole[: len(whole) // 2]
        file.unlink()
        await offered(node)
        await node.claims.prepare(late)
        assert "claims.json" not in node.status["reason"]
        assert {claim["name"] for claim in record(node)["claims"]} == {"held", "late"}
        await node.claims.unprepare(late, held)
        await node.until(nothing_left(node))


async def test_withholds_held_gpus_of_claims_with_a_damaged_checkpoint() -> None:
    async with claims_node(2, BY_SIZE) as node:
        share = names(node, "share")[0]
        held = node.api.resources.allocate("held", share, memory="30Gi", cores="30")
        await node.claims.prepare(held)
        await node.kill()
        (node.folder / "state/claims.json").write_text("{")
        node.configure({})
        await node.start()
        await node.offered(GPU, 1)
        await node.throughout(2, lambda: node.kubelet.allocatable(GPU) == 1)
        assert "default/held" in node.status["reason"]


async def test_keeps_the_layout_of_a_gpu_in_use_without_its_checkpoint() -> None:
    async with claims_node(1, BY_SIZE) as node:
        (share,) = names(node, "share")
        held = node.api.resources.allocate("held", share, memory="3000Mi", cores="30")
        given = await node.claims.prepare(held)
        node.configure(ON_DEMAND)
        await start_without_checkpoint(node)
        await node.until(lambda: tainted(node, "profile-change") == [share])
        await node.throughout(6, lambda: list(devices(node)) == [share])
        assert await node.claims.prepare(held) == given
        await node.claims.unprepare(held)
        await node.until(nothing_left(node))
        del node.api.resources.claims["default", "held"]
        await node.until(lambda: bool(names(node, "mig")), 30)


async def test_keeps_a_claims_mig_device_without_its_checkpoint() -> None:
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        held = node.api.resources.allocate("held", f"{gpu}-mig-2g10gb-2")
        given = await node.claims.prepare(held)
        await start_without_checkpoint(node)
        await node.until(lambda: len(record(node)["claims"]) == 1)
        assert await node.claims.prepare(held) == given
        assert not tainted(node, "foreign-mig-instance")
        await node.claims.unprepare(held)
        await node.until(nothing_left(node))
        assert not list((node.folder / "cdi").glob("divvy.gpu-claim-*"))


async def test_keeps_later_claims_under_an_older_checkpoint() -> None:
    """Somebody has put a backup of the node's disk back while pods run."""
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        resources, file = node.api.resources, node.folder / "state/claims.json"
        ended = [
            resources.allocate(f"ended-{start}", f"{gpu}-mig-1g5gb-{start}") for start in (0, 5)
        ]
        await node.claims.prepare(*ended)
        older = file.read_text()
        await node.claims.unprepare(*ended)
        held = resources.allocate("held", f"{gpu}-mig-3g20gb-0")
        given = await node.claims.prepare(held)
        await node.kill()
        file.write_text(older)
        registrations = node.claims.registrations
        await node.start()
        await node.until(lambda: node.claims.registrations > registrations)
        assert [claim["name"] for claim in record(node)["claims"]] == ["held"]
        await node.throughout(2, lambda: len(specifications(node)) == 1)
        assert await node.claims.prepare(held) == given
        assert not tainted(node, "foreign-mig-instance")
        late = resources.allocate("late", f"{gpu}-mig-1g5gb-5")
        await node.claims.prepare(late)
        await node.claims.unprepare(held, late)
        await node.until(nothing_left(node))


async def test_lets_an_administrator_release_what_a_kubelet_forgot() -> None:
    """As docs/troubleshooting.md says: the claim's two files and claims.json, then the agent."""
    async with claims_node(2, BY_SIZE) as node:
        first, second = names(node, "share")
        resources = node.api.resources
        forgotten = resources.allocate("forgotten", first, memory="30Gi", cores="30")
        held = resources.allocate("held", second, memory="30Gi", cores="30")
        await node.claims.prepare(forgotten)
        given = await node.claims.prepare(held)
        files = [
            path.with_suffix(end)
            for path in (node.folder / "cdi").glob("divvy.gpu-claim-*.held")
            if '"forgotten"' in path.read_text()
            for end in (".held", ".json")
        ]
        assert len(files) == 2
        for path in files:
            path.unlink()
        await start_without_checkpoint(node)
        # The pool is whole again a moment after the agent is there.
        await node.until(lambda: first in names(node, "share"))
        late = resources.allocate("late", first, memory="30Gi", cores="30")
        await node.claims.prepare(late)
        assert await node.claims.prepare(held) == given
        await node.claims.unprepare(held, late)
        await node.until(nothing_left(node))
