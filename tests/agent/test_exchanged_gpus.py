"""GPUs that take the place of others follow the profile of the place."""

from __future__ import annotations

import asyncio
import json
import socket

import pytest

from lab.fakes.agent import agent_node
from lab.fakes.simulator import on_simulated_node

GPU, SHARED, MIG = "nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.5gb"
SEVEN = {"mig": {"1g.5gb": 7}}
pytestmark = on_simulated_node


async def test_applies_the_profile_to_an_exchanged_gpu_after_another_plugin() -> None:
    rules = [{"devices": [0], "timeSlicing": {"replicas": 3}}, {"devices": [1]}]
    async with agent_node(2, rules) as node:
        await node.offered(SHARED, 3)
        await node.until(lambda: node.status.get("state") == "Ready")
        await node.kill()
        path = node.folder / "state/state.json"
        text = path.read_text()
        first = json.loads(text)["assignment"]["0"]
        path.write_text(text.replace(first, "GPU-dead0000-0000-0000-0000-000000000000"))
        with socket.socket(socket.AF_UNIX) as other:
            place = node.kubelet.plugins / "nvidia-gpu.sock"
            other.bind(str(place))
            other.listen()
            await node.start()
            await node.until(lambda: "another device plugin" in node.status.get("reason", ""))
            await asyncio.sleep(2)
        place.unlink()
        await node.offered(SHARED, 3)
        await node.until(lambda: node.status["state"] == "Ready")


@pytest.mark.parametrize("boot", ["the same boot", "another boot"])
@pytest.mark.parametrize("moved", [False, True], ids=["same slot", "another slot"])
async def test_applies_the_profile_to_exchanged_gpus(boot: str, moved: bool) -> None:
    """One in the same PCI slot always; one in another slot when the node was restarted."""
    rules = [{"devices": [0], **SEVEN}, {"devices": [1], "timeSlicing": {"replicas": 3}}]
    async with agent_node(2, rules) as node:
        await node.offered(MIG, 7)
        await node.offered(SHARED, 3)
        await node.until(lambda: node.status.get("state") == "Ready")
        await node.kill()
        # The GPUs of the last boot were others, by their UUIDs.
        path = node.folder / "state/state.json"
        state = json.loads(path.read_text())
        text = path.read_text()
        for index, uuid in state["assignment"].items():
            text = text.replace(uuid, f"GPU-dead0000-0000-0000-0000-00000000000{index}")
        if boot == "another boot":
            text = text.replace(next(iter(state["last_seen"].values())), "an earlier boot")
        if moved:
            for gpu in state["gpus"]:
                text = text.replace(gpu["pci_bus_id"], "0000FFFF:" + gpu["pci_bus_id"][9:])
        path.write_text(text)
        await node.start()
        if moved and boot == "the same boot":
            await node.until(lambda: "the GPU is lost" in node.status.get("reason", ""))
            return
        await node.offered(SHARED, 3)
        await node.offered(MIG, 7)
        await node.until(lambda: node.status["state"] == "Ready")
        assert node.kubelet.allocatable(GPU) == 0
        assert node.api.node["metadata"]["labels"]["nvidia.com/gpu.count"] == "2"
