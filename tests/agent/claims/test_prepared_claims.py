"""Claims are prepared, waited for and given back: the agent as a process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lab.fakes.dra_kubelet import Failed
from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.scene import (
    BY_SIZE,
    ON_DEMAND,
    claims_node,
    names,
    nothing_left,
    record,
    specifications,
)

pytestmark = on_simulated_node


async def test_writes_two_shares_of_a_claim_into_one_limits_file() -> None:
    """What HAMi's users ask for: two GPUs, 3000 MiB and 30 % of each, in one container."""
    async with claims_node(2, BY_SIZE) as node:
        first, other = names(node, "share")
        claim = node.api.resources.allocate("two", first, other, memory="3000Mi", cores="30")
        given = (await node.claims.prepare(claim))[claim["metadata"]["uid"]]
        (spec,) = specifications(node)
        assert [device.device_name for device in given] == [first, other]
        assert {name for device in given for name in device.cdi_device_ids} == {
            f"divvy.gpu/claim={device['name']}" for device in spec["devices"]
        }
        (limits,) = (node.folder / "tenants/shares").glob("*/limits")
        assert limits.read_text().count(f"memory {3000 << 20} compute share weight 30") == 2
        for device in spec["devices"]:
            mounts = {
                mount["containerPath"]: mount["hostPath"]
                for mount in device["containerEdits"]["mounts"]
            }
            assert mounts["/usr/lib/divvy/share/limits"] == str(limits)
        assert await node.claims.prepare(claim) == {claim["metadata"]["uid"]: given}
        await node.claims.unprepare(claim)
        await node.claims.unprepare(claim)
        await node.until(nothing_left(node))


async def test_prepares_a_partly_released_claim_by_its_current_allocation() -> None:
    """The same device of the same claim, in the size of another alternative."""
    async with claims_node(1, BY_SIZE) as node:
        (share,) = names(node, "share")
        claim = node.api.resources.allocate("part", share, memory="3000Mi", cores="30")
        await node.claims.prepare(claim)
        await node.kill()
        file = node.folder / "state/claims.json"
        file.write_text(file.read_text().replace("PrepareCompleted", "PrepareStarted"))
        registrations = node.claims.registrations
        await node.start()
        await node.until(lambda: node.claims.registrations > registrations, 60)
        results = claim["status"]["allocation"]["devices"]["results"]
        results[0]["consumedCapacity"] |= {"memory": "2000Mi", "cores": "20"}
        await node.claims.prepare(claim)
        (limits,) = (node.folder / "tenants/shares").glob("*/limits")
        assert f"memory {2000 << 20} compute share weight 20" in limits.read_text()
        (held,) = record(node)["claims"]
        assert held["devices"][0]["sharing"]["memory_mib"] == 2000
        await node.claims.unprepare(claim)
        await node.until(nothing_left(node))


async def test_prepares_a_reallocated_claim_again() -> None:
    """The node was off, its pod deleted by force, and the next pod of the claim got another GPU."""
    async with claims_node(2, ON_DEMAND) as node:
        gpu, other = names(node, "gpu")
        claim = node.api.resources.allocate("mine", f"{gpu}-mig-1g5gb-0")
        uid = claim["metadata"]["uid"]
        await node.claims.prepare(claim)
        results = claim["status"]["allocation"]["devices"]["results"]
        results[0]["device"] = f"{other}-share"
        results[0]["shareID"] = "11111111-0000-0000-0000-000000000000"
        results[0]["consumedCapacity"] = {"memory": "3000Mi", "cores": "30"}
        (given,) = (await node.claims.prepare(claim))[uid]
        assert given.device_name == f"{other}-share"
        assert "MIG-" not in node.mig_devices()
        # The first GPU is free for its next holder at once.
        taker = node.api.resources.allocate("taker", gpu)
        (device,) = (await node.claims.prepare(taker))[taker["metadata"]["uid"]]
        assert device.device_name == gpu
        await node.claims.unprepare(claim, taker)
        await node.until(nothing_left(node))


async def test_keeps_what_is_prepared_while_the_api_is_away() -> None:
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        claim = node.api.resources.allocate("mine", f"{gpu}-mig-1g5gb-0")
        uid = claim["metadata"]["uid"]
        given = (await node.claims.prepare(claim))[uid]
        del node.api.resources.claims["default", "mine"]
        assert (await node.claims.prepare(claim))[uid] == given
        await node.api.stop()
        assert (await node.claims.prepare(claim))[uid] == given
        assert node.mig_devices().count("MIG-") == 1


@pytest.mark.parametrize(
    "garbage",
    [
        {},
        {"metadata": None},
        {"kind": "Status", "metadata": {}},
        {"metadata": {"name": "mine", "namespace": "default", "uid": "UID"}, "status": []},
        {
            "metadata": {"name": "mine", "namespace": "default", "uid": "UID"},
            "status": {"allocation": {"devices": {"results": [{"device": "x"}]}}},
        },
    ],
)
async def test_keeps_what_is_prepared_while_the_api_answers_something_odd(
    garbage: dict[str, Any],
) -> None:
    """Such as a proxy's page: containers that run, or start again, must not wait for it."""
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        claim = node.api.resources.allocate("mine", f"{gpu}-mig-1g5gb-0")
        uid = claim["metadata"]["uid"]
        given = (await node.claims.prepare(claim))[uid]
        odd = json.loads(json.dumps(garbage).replace("UID", uid))
        node.api.resources.claims["default", "mine"] = odd
        assert (await node.claims.prepare(claim))[uid] == given
        # A claim that is not prepared yet is read again until that is possible.
        late = node.api.resources.allocate("late", f"{gpu}-mig-1g5gb-1")
        node.api.resources.claims["default", "late"] = odd | {"metadata": None}
        waiting = asyncio.create_task(node.claims.prepare(late))
        await node.throughout(1, lambda: not waiting.done())
        node.api.resources.claims["default", "late"] = late
        await waiting
        assert node.mig_devices().count("MIG-") == 2


async def test_sets_up_no_limiter_for_a_whole_gpu() -> None:
    async with claims_node(1, BY_SIZE) as node:
        (share,) = names(node, "share")
        claim = node.api.resources.allocate("all", share)
        await node.claims.prepare(claim)
        (spec,) = specifications(node)
        mounts = json.dumps(spec)
        assert "limiter" not in mounts
        assert "/usr/lib/divvy/share" not in mounts
        await node.claims.unprepare(claim)
        await node.until(nothing_left(node))


async def test_waits_with_a_claim_until_the_former_holder_is_gone() -> None:
    """A pod that is deleted by force frees its claim before its containers have ended."""
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        share = node.api.resources.allocate("former", f"{gpu}-share", memory="10Gi", cores="10")
        await node.claims.prepare(share)
        later = [
            node.api.resources.allocate("mig", f"{gpu}-mig-1g5gb-0"),
            node.api.resources.allocate("also-mig", f"{gpu}-mig-1g5gb-1"),
        ]
        waiting = [asyncio.create_task(node.claims.prepare(claim)) for claim in later]
        await node.throughout(2, lambda: not any(task.done() for task in waiting))
        await node.claims.unprepare(share)
        for task in waiting:
            await task
        assert node.mig_devices().count("MIG-") == 2
        await node.claims.unprepare(*later)
        await node.until(nothing_left(node))


async def test_leaves_nothing_of_a_claim_released_while_it_waits() -> None:
    async with claims_node(1, ON_DEMAND) as node:
        (gpu,) = names(node, "gpu")
        first = node.api.resources.allocate("first", gpu)
        await node.claims.prepare(first)
        late = node.api.resources.allocate("late", f"{gpu}-mig-3g20gb-0")
        waiting = asyncio.create_task(node.claims.prepare(late))
        await asyncio.sleep(0.5)
        await node.claims.unprepare(late)
        with pytest.raises(Failed, match="still held by claim default/first"):
            await waiting
        await node.claims.unprepare(first)
        await node.until(nothing_left(node))


async def test_restores_prepared_claims_after_a_restart() -> None:
    async with claims_node(2, ON_DEMAND) as node:
        gpu, other = names(node, "gpu")
        mig = node.api.resources.allocate("mig", f"{gpu}-mig-2g10gb-4")
        share = node.api.resources.allocate("share", f"{other}-share", memory="9Gi", cores="9")
        given = await node.claims.prepare(mig, share)
        account = next((node.folder / "tenants/shares").glob("*/account")).stat().st_ino
        slices = json.loads(json.dumps(node.api.resources.slices))
        await node.kill()
        for path in (node.folder / "cdi").iterdir():
            path.unlink()  # a power failure: /run is empty
        registrations = node.claims.registrations
        await node.start()
        await node.until(lambda: node.claims.registrations > registrations)
        assert await node.claims.prepare(mig, share) == given
        await node.until(lambda: len(specifications(node)) == 2)
        assert next((node.folder / "tenants/shares").glob("*/account")).stat().st_ino == account
        assert node.api.resources.slices == slices
        assert len(record(node)["claims"]) == 2
        await node.claims.unprepare(mig, share)
        await node.until(nothing_left(node))


async def test_writes_a_specification_again_once_it_can() -> None:
    """The driver has other files now, and the folder of specifications had no room for them."""
    program = "nvidia-debugdump"
    async with claims_node(1, BY_SIZE) as node:
        (share,) = names(node, "share")
        claim = node.api.resources.allocate("mine", share, memory="3000Mi", cores="30")
        await node.claims.prepare(claim)
        uid = claim["metadata"]["uid"]
        blocked = node.folder / f"cdi/.divvy.gpu-claim-{uid}.json.new"
        blocked.mkdir()
        (node.driver / "usr/bin" / program).touch(0o755)
        node.api.label(any="thing")
        node_spec = node.folder / "cdi/divvy.gpu-gpu.json"
        await node.until(lambda: program in node_spec.read_text())
        await node.until(lambda: blocked.name in node.status["reason"])
        (spec,) = specifications(node)
        assert program not in json.dumps(spec)
        blocked.rmdir()
        await node.until(lambda: program in json.dumps(specifications(node)))
        await node.until(lambda: blocked.name not in node.status["reason"])
