"""Too many connections, silent ones, and one that died: the GPUs are served."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from lab.fakes.agent import AgentNode, agent_node
from lab.fakes.simulator import on_simulated_node

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
pytestmark = on_simulated_node


async def test_keeps_serving_under_three_hundred_scrapers() -> None:
    async with agent_node(4, {}) as node:
        await node.offered(GPU, 4)
        for index in range(4):
            node.simulate("fault", "slow", str(index), "20")

        end = time.monotonic() + 8

        async def scrape() -> None:
            while time.monotonic() < end:
                await get(node, "/metrics")

        await asyncio.gather(
            *(scrape() for _ in range(300)),
            node.throughout(8, lambda: node.kubelet.allocatable(GPU) == 4),
        )
        async with asyncio.timeout(60):
            while b"divvy_devices" not in await get(node, "/metrics"):
                await asyncio.sleep(0.1)
        assert node.kubelet.allocatable(GPU) == 4


async def test_keeps_serving_under_two_thousand_idle_connections() -> None:
    # As where containerd's unit sets no LimitNOFILE.
    async with agent_node(2, {}) as node, few_files(node):
        await node.offered(GPU, 2)
        writers = []
        for _ in range(2000):
            with contextlib.suppress(OSError):  # closed already, to make way
                writers.append((await asyncio.open_connection("127.0.0.1", node.port))[1])
        await node.throughout(5, lambda: node.kubelet.allocatable(GPU) == 2)
        assert b"200 OK" in await get(node, "/healthz")
        for writer in writers:
            writer.close()
        assert node.agent is not None
        assert node.agent.returncode is None


async def test_receives_a_new_stack_file_after_the_watch_died_silently() -> None:
    async with agent_node(2, {}) as node:
        node.environment["DIVVY_WATCH_SECONDS"] = "4"
        await node.kill()
        await node.start()
        await node.offered(GPU, 2)
        node.api.forget_connections()
        node.configure({"timeSlicing": {"replicas": 2}})
        await node.offered(SHARED, 4, 20)


async def get(node: AgentNode, path: str) -> bytes:
    """Return what the agent's web endpoint answers, b"" if it closes the connection."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
        writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
    except OSError:
        return b""
    return answer


@asynccontextmanager
async def few_files(node: AgentNode) -> AsyncIterator[None]:
    """Limit the agent's open files as systemd's default does."""
    subprocess.run(["prlimit", f"--pid={node.pid}", "--nofile=1024:1024"], check=True)
    yield
