"""A node goes from the device plugin to claims and back, or never had any."""

from __future__ import annotations

from lab.fakes.agent import agent_node
from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.scene import (
    BY_SIZE,
    ON_DEMAND,
    claims_node,
    devices,
    names,
    offered,
    tainted,
)

pytestmark = on_simulated_node
GPU = "nvidia.com/gpu"


async def test_moves_gpus_between_plugin_and_claims_without_sharing_one() -> None:
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
        lists = node.api.resources.lists
        await node.throughout(5, lambda: node.kubelet.allocatable(GPU) == 1)
        assert "default/tenant" in node.status["reason"]
        # While it is held here, the API need not be asked who was allocated what.
        assert node.api.resources.lists == lists
        await node.claims.unprepare(claim)
        del node.api.resources.claims["default", "tenant"]
        await node.offered(GPU, 2)
        await node.until(lambda: not node.api.resources.slices)
        await node.claims.until(lambda: not node.claims.registered)


async def test_needs_neither_rights_nor_folders_without_claims() -> None:
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


async def test_releases_gpus_after_losing_the_rights_of_the_last_claims_profile() -> None:
    async with claims_node(2, BY_SIZE) as node:
        await node.kill()
        node.api.resources.forbidden = True
        node.environment["DIVVY_CLAIMS_FOLDER"] = "/proc/none"
        node.environment["DIVVY_REGISTRY_FOLDER"] = "/proc/none"
        node.configure({})
        await node.start()
        await node.offered(GPU, 2)
        await node.until(lambda: node.status["state"] == "Ready")


async def test_keeps_a_device_allocated_but_not_prepared_through_a_change() -> None:
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
