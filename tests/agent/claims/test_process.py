"""The driver of claims as a process: what is published, prepared and given back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.agent.claims.scene import (
    BY_SIZE,
    NEEDS_DRIVER,
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
from tests.fakes.agent import AgentNode, agent_node
from tests.fakes.dra_kubelet import Failed
from tests.fakes.scene import play

pytestmark = NEEDS_DRIVER
GPU = "nvidia.com/gpu"


def generations(node: AgentNode) -> set[int]:
    return {each["spec"]["pool"]["generation"] for each in node.api.resources.slices.values()}


def test_two_shares_of_one_claim_stand_in_one_file_of_limits() -> None:
    """What HAMi's users ask for: two GPUs, 3000 MiB and 30 % of each, in one container."""

    async def scene() -> None:
        async with claims_node(2, BY_SIZE) as node:
            one, other = names(node, "share")
            claim = node.api.resources.allocate("two", one, other, memory="3000Mi", cores="30")
            given = (await node.claims.prepare(claim))[claim["metadata"]["uid"]]
            (spec,) = specifications(node)
            assert [each.device_name for each in given] == [one, other]
            assert {name for each in given for name in each.cdi_device_ids} == {
                f"divvy.gpu/claim={each['name']}" for each in spec["devices"]
            }
            (limits,) = (node.folder / "state/shares").glob("*/limits")
            assert limits.read_text().count(f"memory {3000 << 20} compute share weight 30") == 2
            for each in spec["devices"]:
                mounts = {
                    mount["containerPath"]: mount["hostPath"]
                    for mount in each["containerEdits"]["mounts"]
                }
                assert mounts["/usr/lib/divvy/share/limits"] == str(limits)
            assert await node.claims.prepare(claim) == {claim["metadata"]["uid"]: given}
            await node.claims.unprepare(claim)
            await node.claims.unprepare(claim)
            await node.until(nothing_left(node))

    play(scene)


def test_a_claim_that_was_given_back_in_part_gets_what_it_is_allocated_now() -> None:
    """The same device of the same claim, in the size of another alternative."""

    async def scene() -> None:
        async with claims_node(1, BY_SIZE) as node:
            (share,) = names(node, "share")
            claim = node.api.resources.allocate("part", share, memory="3000Mi", cores="30")
            await node.claims.prepare(claim)
            await node.kill()
            file = node.folder / "state/claims.json"
            file.write_text(file.read_text().replace('"done": true', '"done": false'))
            registrations = node.claims.registrations
            await node.start()
            await node.until(lambda: node.claims.registrations > registrations, 60)
            results = claim["status"]["allocation"]["devices"]["results"]
            results[0]["consumedCapacity"] |= {"memory": "2000Mi", "cores": "20"}
            await node.claims.prepare(claim)
            (limits,) = (node.folder / "state/shares").glob("*/limits")
            assert f"memory {2000 << 20} compute share weight 20" in limits.read_text()
            (held,) = record(node)["claims"]
            assert held["devices"][0]["memory_mib"] == 2000
            await node.claims.unprepare(claim)
            await node.until(nothing_left(node))

    play(scene)


def test_all_of_a_gpu_has_no_limiter_in_front() -> None:
    async def scene() -> None:
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

    play(scene)


def test_a_mig_device_is_made_where_it_was_allocated_and_removed_again() -> None:
    async def scene() -> None:
        async with claims_node(1, ON_DEMAND) as node:
            (gpu,) = names(node, "gpu")
            second = node.api.resources.allocate("second", f"{gpu}-mig-2g10gb-2")
            first = node.api.resources.allocate("first", f"{gpu}-mig-1g5gb-0")
            given = await node.claims.prepare(second)
            await node.claims.prepare(first)
            (device,) = given[second["metadata"]["uid"]]
            uuid = device.cdi_device_ids[0].rpartition("_")[2]
            assert uuid in node.mig_devices()
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

    play(scene)


def test_whoever_comes_before_the_former_holder_has_gone_waits() -> None:
    """A pod that is deleted by force frees its claim before its containers have ended."""

    async def scene() -> None:
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

    play(scene)


def test_a_claim_that_is_given_back_while_it_waits_has_nothing() -> None:
    async def scene() -> None:
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

    play(scene)


def test_an_instance_that_somebody_else_has_made_is_left_alone() -> None:
    async def scene() -> None:
        async with claims_node(1, ON_DEMAND) as node:
            (gpu,) = names(node, "gpu")
            ours = node.api.resources.allocate("ours", f"{gpu}-mig-1g5gb-6")
            await node.claims.prepare(ours)
            node.smi("mig", "-i", "0", "-cgi", "14", "-C")
            foreign = node.mig_devices().count("MIG-")
            assert foreign == 2
            await node.until(lambda: "no claim has made" in node.status["reason"])
            await node.until(lambda: bool(tainted(node, "foreign-mig-instance")))
            starts = [
                node.api.resources.allocate(f"at-{n}", f"{gpu}-mig-2g10gb-{n}") for n in (0, 2, 4)
            ]
            prepared = [node.claims.prepare(claim) for claim in starts]
            answers = await asyncio.gather(*prepared, return_exceptions=True)
            (refused,) = [each for each in answers if isinstance(each, Failed)]
            assert "MIG instances that no claim has made" in str(refused)
            await node.claims.unprepare(ours, *starts)
            await node.until(lambda: node.mig_devices().count("MIG-") == 1)

    play(scene)


def test_slices_come_back_when_somebody_deletes_or_changes_them() -> None:
    async def scene() -> None:
        async with claims_node(2, ON_DEMAND) as node:
            resources = node.api.resources
            before = json.loads(json.dumps(resources.slices))
            (generation,) = generations(node)
            for name in before:
                resources.delete(name)  # as the kubelet does when it starts
            await node.until(lambda: resources.slices.keys() == before.keys())
            assert all(each["metadata"]["ownerReferences"] for each in resources.slices.values())
            name = sorted(before)[-1]
            resources.change(name, {**resources.slices[name]["spec"], "devices": []})
            await node.until(lambda: specs(resources.slices) == specs(before))
            assert generations(node) == {generation}

    def specs(slices: dict[str, Any]) -> list[Any]:
        return [slices[name]["spec"].get("devices") for name in sorted(slices)]

    play(scene)


def test_shares_go_where_the_fewest_tasks_are() -> None:
    async def scene() -> None:
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

    play(scene)


def test_a_gpu_that_fails_is_tainted_and_its_pods_are_told() -> None:
    async def scene() -> None:
        async with claims_node(2, BY_SIZE, health={"recoverAfter": "2s"}) as node:
            shares = names(node, "share")
            await node.claims.until(lambda: len(node.claims.health) == 2)
            node.simulate("fault", "xid", "1", "79")
            await node.until(lambda: tainted(node, "unhealthy") == [shares[1]])
            await node.claims.until(
                lambda: node.claims.health[shares[1]] == ("Unhealthy", "XID 79")
            )
            await node.until(lambda: not tainted(node, "unhealthy"))
            await node.claims.until(lambda: node.claims.health[shares[1]][0] == "Healthy")

    play(scene)


def test_from_the_device_plugin_to_claims_and_back_nobody_has_a_gpu_twice() -> None:
    async def scene() -> None:
        async with agent_node(2, {}) as node:
            node.patience = 60
            await node.offered(GPU, 2)
            await node.kubelet.admit("default/tenant", GPU)
            node.configure(BY_SIZE)
            await node.offered(GPU, 0)
            await node.throughout(2, lambda: not devices(node))
            node.kubelet.end("default/tenant")
            await offered(node)
            share = names(node, "share")[0]
            claim = node.api.resources.allocate("tenant", share)
            await node.claims.prepare(claim)
            node.configure({})
            await node.offered(GPU, 1)
            await node.until(lambda: tainted(node, "profile-change") == [share])
            await node.throughout(2, lambda: node.kubelet.allocatable(GPU) == 1)
            assert "default/tenant" in node.status["reason"]
            await node.claims.unprepare(claim)
            del node.api.resources.claims["default", "tenant"]
            await node.offered(GPU, 2)
            await node.until(lambda: not node.api.resources.slices)
            await node.claims.until(lambda: not node.claims.registered)

    play(scene)


def test_a_damaged_checkpoint_takes_nothing_from_whom_it_named() -> None:
    async def scene() -> None:
        async with claims_node(1, BY_SIZE) as node:
            (share,) = names(node, "share")
            held = node.api.resources.allocate("held", share, memory="3000Mi", cores="30")
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

    play(scene)


def test_a_node_that_never_had_a_claim_asks_for_nothing_and_needs_no_folder() -> None:
    async def scene() -> None:
        async with agent_node(2, {}) as node:
            await node.offered(GPU, 2)
            await node.kill()
            node.api.resources.forbidden = True
            node.environment["DIVVY_CLAIMS_FOLDER"] = "/proc/none"
            node.environment["DIVVY_REGISTRY_FOLDER"] = "/proc/none"
            await node.start()
            await node.offered(GPU, 2)
            await node.until(lambda: node.status["state"] == "Ready")
            await node.throughout(3, lambda: node.status["state"] == "Ready")
            assert not node.api.resources.requests

    play(scene)


def test_rights_that_went_with_the_last_profile_with_claims_keep_no_gpu() -> None:
    async def scene() -> None:
        async with claims_node(2, BY_SIZE) as node:
            await node.kill()
            node.api.resources.forbidden = True
            node.environment["DIVVY_CLAIMS_FOLDER"] = "/proc/none"
            node.environment["DIVVY_REGISTRY_FOLDER"] = "/proc/none"
            node.configure({})
            await node.start()
            await node.offered(GPU, 2)
            await node.until(lambda: node.status["state"] == "Ready")

    play(scene)


def test_a_device_that_was_allocated_and_not_prepared_yet_stays_through_a_change() -> None:
    async def scene() -> None:
        async with claims_node(1, BY_SIZE) as node:
            (share,) = names(node, "share")
            claim = node.api.resources.allocate("late", share, memory="1Gi", cores="10")
            node.configure(ON_DEMAND)
            await node.until(lambda: tainted(node, "profile-change") == [share])
            await node.throughout(6, lambda: list(devices(node)) == [share])
            await node.claims.prepare(claim)
            await node.claims.unprepare(claim)
            del node.api.resources.claims["default", "late"]
            await node.until(lambda: bool(names(node, "mig")), 30)
            # The slices of a new generation are written one after the other.
            await node.until(lambda: not tainted(node, "profile-change"))

    play(scene)


def test_what_is_held_is_there_for_the_next_agent() -> None:
    async def scene() -> None:
        async with claims_node(2, ON_DEMAND) as node:
            gpu, other = names(node, "gpu")
            mig = node.api.resources.allocate("mig", f"{gpu}-mig-2g10gb-4")
            share = node.api.resources.allocate("share", f"{other}-share", memory="9Gi", cores="9")
            given = await node.claims.prepare(mig, share)
            account = next((node.folder / "state/shares").glob("*/account")).stat().st_ino
            slices = json.loads(json.dumps(node.api.resources.slices))
            await node.kill()
            for path in (node.folder / "cdi").iterdir():
                path.unlink()  # a power failure: /run is empty
            registrations = node.claims.registrations
            await node.start()
            await node.until(lambda: node.claims.registrations > registrations)
            assert await node.claims.prepare(mig, share) == given
            await node.until(lambda: len(specifications(node)) == 2)
            assert next((node.folder / "state/shares").glob("*/account")).stat().st_ino == account
            assert node.api.resources.slices == slices
            assert len(record(node)["claims"]) == 2
            await node.claims.unprepare(mig, share)
            await node.until(nothing_left(node))

    play(scene)
