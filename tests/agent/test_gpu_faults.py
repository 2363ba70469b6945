"""One GPU fails, hangs or is reset: the others are served, and health is told meanwhile."""

from __future__ import annotations

import asyncio

from lab.fakes.agent import AgentNode, agent_node
from lab.fakes.simulator import on_simulated_node
from tests.agent.nvml.test_driver import slow_nvidia_smi

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
SEVEN = {"mig": {"1g.5gb": 7}}
pytestmark = on_simulated_node


async def test_withdraws_only_the_devices_of_a_hanging_gpu_until_it_answers() -> None:
    async with agent_node(4, {}, health={"recoverAfter": "3s"}) as node:
        await node.offered(GPU, 4)
        node.simulate("fault", "slow", "0", "60000")
        await node.offered(GPU, 3)
        await node.throughout(8, lambda: node.kubelet.allocatable(GPU) == 3)
        assert "does not answer" in node.status["gpus"][0]["reason"]
        node.simulate("fault", "clear", "0")


async def test_isolates_a_gpu_that_falls_off_the_bus() -> None:
    """Its last event is XID 79, and by then it does not tell who it is."""
    async with agent_node(3, {}) as node:
        await node.offered(GPU, 3)
        node.simulate("fault", "lost", "0")
        await node.offered(GPU, 2)
        await node.throughout(3, lambda: node.kubelet.allocatable(GPU) == 2)


async def fault_while_the_kubelet_is_asked(node: AgentNode) -> None:
    node.kubelet.answer_seconds = 4.0
    node.configure({}, change={"policy": "never"})
    await asyncio.sleep(1)  # it is asking
    node.simulate("fault", "xid", "1", "48")
    await node.offered(GPU, 1, 2)


async def test_reports_health_without_waiting_for_a_slow_kubelet() -> None:
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        await fault_while_the_kubelet_is_asked(node)


async def test_completes_the_layout_after_a_slow_reset_while_reporting_health() -> None:
    async with agent_node(2, {"timeSlicing": {"replicas": 2}}) as node:
        await node.offered(SHARED, 4)
        slow_nvidia_smi(node.driver, 20)
        node.simulate("fault", "no-activation", "0")
        node.configure([{"devices": [0], **SEVEN}, {"timeSlicing": {"replicas": 2}}])
        await node.until(lambda: node.status["gpus"][0]["state"] == "Changing")
        await asyncio.sleep(1)
        node.simulate("fault", "xid", "1", "48")
        await node.offered(SHARED, 0, 15)  # GPU 1 is sick, GPU 0 in its reset
        await node.offered(MIG, 7, 60)


async def test_keeps_working_beside_an_endless_nvidia_smi() -> None:
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        slow_nvidia_smi(node.driver, 1000)
        node.simulate("fault", "no-activation", "0")
        node.configure([{"devices": [0], **SEVEN}, {}])
        await node.until(lambda: node.status["gpus"][0]["state"] == "Changing")
        await asyncio.sleep(2)
        node.simulate("fault", "xid", "1", "48")
        await node.offered(GPU, 0, 3)
        node.configure([{"devices": [0], **SEVEN}, {"timeSlicing": {"replicas": 2}}])
        await node.until(lambda: SHARED in node.kubelet.endpoints)


async def test_keeps_a_fault_over_a_restart_while_waiting_for_the_kubelet() -> None:
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        await fault_while_the_kubelet_is_asked(node)
        await node.kill()
        node.kubelet.answer_seconds = 0.0
        await node.start()
        await node.until(lambda: "XID 48" in node.status.get("reason", ""))
        await node.throughout(5, lambda: node.kubelet.allocatable(GPU) <= 1)


async def test_ignores_a_listed_xid_from_its_start() -> None:
    """A GPU that does not answer makes the first look at the others a long one."""
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        await node.kill()
        node.simulate("fault", "slow", "0", "60000")
        await node.start()
        for _ in range(20):
            await asyncio.sleep(0.2)
            node.simulate("fault", "xid", "1", "13")
        await node.offered(GPU, 1)
        assert "XID" not in node.status["reason"]
