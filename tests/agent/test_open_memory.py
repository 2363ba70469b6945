"""Memory that processes use without the driver: no limit holds, and none is promised."""

from __future__ import annotations

from divvy.agent.inject.limiter import LIBRARIES
from lab.fakes.agent import agent_node
from lab.fakes.simulator import on_simulated_node
from tests.agent.claims.scene import BY_SIZE, claims_node, names

SHARED = "nvidia.com/gpu.shared"
LIMITED = {
    "timeSlicing": {"replicas": 4, "memoryLimit": {"limit": "4Gi", "action": "prevent"}},
}
WATCHED = {"timeSlicing": {"replicas": 4, "memoryLimit": {"limit": "4Gi", "action": "warn"}}}
pytestmark = on_simulated_node


async def test_offers_no_limited_share_of_memory_that_is_a_numa_node() -> None:
    async with agent_node(2, LIMITED) as node:
        libraries = node.folder / "limiter"
        libraries.mkdir()
        for name in LIBRARIES:
            (libraries / name).write_bytes(b"")
        await node.kill()
        node.environment["DIVVY_LIMITER"] = str(libraries)
        await node.start()
        await node.offered(SHARED, 8)
        node.simulate("fault", "numa-node", "1", "9")
        await node.offered(SHARED, 4, 60)
        await node.until(lambda: "it is NUMA node 9" in node.status["reason"])
        assert "NVreg_CoherentGPUMemoryMode=driver" in node.status["reason"]
        # What is only watched is promised to no share.
        node.configure(WATCHED)
        await node.offered(SHARED, 8)
        await node.until(lambda: "NUMA" not in node.status.get("reason", ""))


async def test_offers_no_share_by_size_of_memory_that_is_a_numa_node() -> None:
    async with claims_node(2, BY_SIZE) as node:
        await node.until(lambda: len(names(node, "share")) == 2)
        node.simulate("fault", "numa-node", "1", "9")
        await node.until(lambda: len(names(node, "share")) == 1)
        await node.until(lambda: len(names(node, "gpu")) == 1)
        await node.until(lambda: "NUMA node 9" in node.status["gpus"][1]["reason"])
        node.simulate("fault", "clear", "1")
        await node.until(lambda: len(names(node, "share")) == 2)
