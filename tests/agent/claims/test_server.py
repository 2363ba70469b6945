"""The driver's sockets, as a kubelet uses them over days."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from divvy.agent.claims.server import SOCKET, ClaimServer, DeviceHealth
from divvy.agent.kubelet.api import drahealth_pb2, drahealth_pb2_grpc
from lab.fakes.scene import running


def claim_server(folder: Path) -> ClaimServer:
    preparation: Any = None
    healths = [DeviceHealth("gpu-0", "")]
    server = ClaimServer(
        *(folder, folder, "node/divvy", preparation),
        *(lambda: healths, lambda: None, lambda _: None),
    )
    server.serving = True
    return server


async def test_leaves_nothing_waiting_after_a_health_stream_that_ended(sockets: Path) -> None:
    """A kubelet opens another one whenever one breaks, and devices may be well for weeks."""
    server = claim_server(sockets)
    async with running(server.run()):
        while not (sockets / SOCKET).exists():
            await asyncio.sleep(0.05)
        async with grpc.aio.insecure_channel(f"unix:{sockets / SOCKET}") as channel:
            stub = drahealth_pb2_grpc.DRAResourceHealthStub(channel)
            tasks = []
            for _ in range(25):
                call = stub.NodeWatchResources(drahealth_pb2.NodeWatchResourcesRequest())
                answer = await call.read()
                assert [device.device.device_name for device in answer.devices] == ["gpu-0"]
                await asyncio.sleep(0.02)
                call.cancel()
                del call
                await asyncio.sleep(0.05)
                tasks.append(len(asyncio.all_tasks()))
    await server.stop()
    assert tasks[-1] <= tasks[4], tasks
