"""The agent's process through crashes, silence of the API, wrong input and a lost GPU."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from lab.fakes.agent import agent_node, configuration
from lab.fakes.device_manager import AdmissionFailed
from lab.fakes.scene import until
from lab.fakes.simulator import on_simulated_node

SHARED, GPU = "nvidia.com/gpu.shared", "nvidia.com/gpu"
pytestmark = on_simulated_node


async def test_serves_its_last_state_after_a_crash_while_the_api_is_away() -> None:
    async with agent_node(2, {"timeSlicing": {"replicas": 4}}) as node:
        await node.offered(SHARED, 8)
        await until(lambda: (node.folder / "state/state.json").exists())
        await node.kubelet.admit("default/tenant", SHARED)
        await node.kill()
        await node.kubelet.until(lambda: node.kubelet.allocatable(SHARED) == 0)
        await node.api.stop()
        await node.start()
        await node.offered(SHARED, 8)
        await node.kubelet.admit("default/next", SHARED)


async def test_keeps_the_offer_and_reports_wrong_input() -> None:
    async with agent_node(2, {"timeSlicing": {"replicas": 4}}) as node:
        await node.offered(SHARED, 8)
        await until(lambda: node.status.get("state") == "Ready")
        newer = json.loads(configuration(2, {})) | {"schemaVersion": 99}
        node.api.configure(json.dumps(newer))
        await until(lambda: "keeping the last good one" in node.status["reason"])
        await until(lambda: node.api.events[-1:] and node.api.events[-1]["type"] == "Warning")
        assert "keeping the last good one" in node.api.events[-1]["message"]
        assert node.api.events[-1]["reason"] == f"Gpu{node.status['state']}"
        assert node.kubelet.allocatable(SHARED) == 8
        node.configure({})
        await node.offered(GPU, 2)
        await node.offered(SHARED, 0)
        await until(lambda: node.status["state"] == "Ready")


async def test_keeps_the_last_good_configuration_beyond_its_config_map() -> None:
    async with agent_node(2, {"timeSlicing": {"replicas": 4}}) as node:
        await node.offered(SHARED, 8)
        await node.kill()
        node.api.config = None
        await node.start()
        await node.offered(SHARED, 8)
        await until(lambda: node.status["state"] == "Ready")
        node.configure({})
        await node.offered(GPU, 2)
        await node.offered(SHARED, 0)


async def test_allocates_what_the_kubelet_chose_to_fifty_pods_at_once() -> None:
    async with agent_node(2, {"timeSlicing": {"replicas": 25}}) as node:
        await node.offered(SHARED, 50)
        for number in range(50):
            answer = await node.kubelet.admit(f"default/p{number}", SHARED)
            (held,) = node.kubelet.held(f"default/p{number}")[SHARED]
            gpu = held.split("::")[0]
            assert [name.name for name in answer.cdi_devices] == [f"divvy.gpu/gpu={gpu}"]
        held_by = [node.kubelet.held(pod)[SHARED][0].split("::")[0] for pod in node.kubelet.pods]
        assert sorted(Counter(held_by).values()) == [25, 25]
        with pytest.raises(AdmissionFailed):
            await node.kubelet.admit("default/late", SHARED)


async def test_answers_on_the_debug_socket_what_it_decided() -> None:
    async with agent_node(2, {"timeSlicing": {"replicas": 4}}) as node:
        await node.offered(SHARED, 8)
        await node.kubelet.admit("default/tenant", SHARED)
        path = node.folder / "state/debug.sock"
        assert path.stat().st_mode & 0o777 == 0o600
        reader, writer = await asyncio.open_unix_connection(path)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        assert head.startswith(b"HTTP/1.1 200 OK")
        state = json.loads(body)
        assert state["injection"] == {"cdi": True, "problem": ""}
        assert state["desired"]["profile"] == "p"
        assert len(state["kubelet"]["resources"][0]["devices"]) == 8
        assert [gpu["state"] for gpu in state["decisions"].values()] == ["Ready", "Ready"]


async def test_withdraws_a_lost_gpu_and_keeps_the_others() -> None:
    sharing = {"timeSlicing": {"replicas": 4}}
    async with agent_node(2, sharing, health={"recoverAfter": "1s"}) as node:
        await node.offered(SHARED, 8)
        node.simulate("fault", "lost", "1")
        await node.offered(SHARED, 4)
        await until(lambda: node.status["state"] == "Degraded")
        assert len(node.kubelet.endpoints[SHARED].devices) == 8


async def test_keeps_devices_unhealthy_over_a_restart() -> None:
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        node.configure({}, health={"recoverAfter": "6s"})
        node.simulate("fault", "xid", "1", "48")
        await node.offered(GPU, 1)
        await until(lambda: "XID 48" in (node.folder / "state/state.json").read_text())
        await node.kill()
        await node.kubelet.until(lambda: node.kubelet.allocatable(GPU) == 0)
        await node.start()
        await node.offered(GPU, 1)
        await node.throughout(3, lambda: node.kubelet.allocatable(GPU) == 1)
        assert "XID 48" in node.status["gpus"][1]["reason"]
        await node.offered(GPU, 2)


async def test_changes_nothing_for_input_nested_too_deeply() -> None:
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        node.api.configure("[" * 100_000)
        await node.until(lambda: "nested too deeply" in node.status.get("reason", ""))
        assert node.kubelet.allocatable(GPU) == 2
        await node.kill()
        (node.folder / "state/state.json").write_text("[" * 100_000)
        await node.start()
        node.configure({})
        await node.offered(GPU, 2)
