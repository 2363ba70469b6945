"""A disk without room: the devices stay, and nothing is given out twice."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from lab.fakes.agent import AgentNode, agent_node
from lab.fakes.simulator import on_simulated_node

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"
pytestmark = on_simulated_node


@pytest.mark.parametrize("of", ["bytes", "inodes"])
@pytest.mark.parametrize("full", ["at the agent's start", "later"])
async def test_reports_a_full_disk_and_keeps_the_devices(full: str, of: str) -> None:
    fill = fill_bytes if of == "bytes" else fill_inodes
    async with agent_node(2, {}) as node, full_state(node, fill, later=full == "later"):
        await node.offered(GPU, 2)
        node.configure({"timeSlicing": {"replicas": 2}})
        await node.until(lambda: "No space left" in node.status["reason"])
        await node.until(lambda: "no repartitioning until" in node.status["reason"])
        await node.throughout(3, lambda: node.kubelet.allocatable(GPU) == 2)
        shutil.rmtree(node.folder / "state/fill")
        await node.offered(SHARED, 4)
        await node.until(lambda: node.status["state"] == "Ready")


async def test_allocates_nothing_twice_when_it_could_not_save() -> None:
    """The disk was full when a change ended, and the change was taken back."""
    async with agent_node(1, {}) as node:
        await node.offered(GPU, 1)
        await node.kubelet.admit("team/train", GPU)
        node.configure({"timeSlicing": {"replicas": 2}})
        await node.until(lambda: node.status.get("state") == "Waiting")
        (node.folder / "state/.state.json.new").mkdir()  # no write succeeds
        node.kubelet.end("team/train")
        await node.offered(SHARED, 2)
        await node.kubelet.admit("team/share", SHARED)
        await node.until(lambda: "cannot be saved" in node.status["reason"])
        for _ in range(2):
            await node.kill()
            node.kubelet.answer_seconds = 1.0
            node.configure({})
            await node.start()
            await node.throughout(4, lambda: node.kubelet.allocatable(GPU) == 0)
        # The kubelet falls silent after the agent has seen the holder.
        node.kubelet.answer_seconds = 0.0
        await node.until(lambda: "held by team/share" in node.status["reason"])
        node.kubelet.answer_seconds = 6.0
        await node.throughout(8, lambda: node.kubelet.allocatable(GPU) == 0)
        node.kubelet.answer_seconds = 0.0
        node.kubelet.end("team/share")
        (node.folder / "state/.state.json.new").rmdir()
        await node.offered(GPU, 1)


def fill_bytes(folder: Path) -> None:
    command = ["dd", "if=/dev/zero", f"of={folder / 'file'}", "bs=4k"]
    subprocess.run(command, capture_output=True, check=False)


def fill_inodes(folder: Path) -> None:
    with contextlib.suppress(OSError):
        for number in itertools.count():
            (folder / str(number)).touch()


async def test_reports_a_resource_without_a_socket_and_goes_on_with_the_others() -> None:
    """The kubelet's folder has no room for another socket."""
    async with agent_node(2, {}) as node:
        await node.offered(GPU, 2)
        place = node.kubelet.plugins / "divvy-nvidia.com_gpu.shared.sock"
        place.mkdir()
        node.configure([{"devices": [0], "timeSlicing": {"replicas": 2}}, {"devices": [1]}])
        await node.offered(GPU, 1)
        await node.until(lambda: place.name in node.status["reason"])
        assert node.status["state"] == "Degraded"
        assert place.name in await answer(node, "/readyz")
        # The agent looks after the other GPU meanwhile, and its kubelet comes and goes.
        await node.kubelet.stop()
        await node.kubelet.start()
        await node.offered(GPU, 1)
        node.simulate("fault", "xid", "1", "79")
        await node.offered(GPU, 0)
        await node.until(lambda: "XID 79" in node.status["reason"])
        place.rmdir()
        await node.offered(SHARED, 2)
        await node.until(lambda: place.name not in node.status["reason"])


async def answer(node: AgentNode, path: str) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", node.port)
    writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
    text = (await reader.read()).decode()
    writer.close()
    return text


@asynccontextmanager
async def full_state(
    node: AgentNode, fill: Callable[[Path], None], later: bool
) -> AsyncIterator[None]:
    """Put the agent's state on a file system without room, from its next start on or later."""
    state = node.folder / "state"
    await node.offered(GPU, 2)
    await node.kill()
    saved = (state / "state.json").read_bytes()
    options = "size=16m,nr_inodes=500"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(state)], check=True)
    try:
        (state / "state.json").write_bytes(saved)
        (state / "fill").mkdir()
        if not later:
            fill(state / "fill")
        await node.start()
        if later:
            await node.until(lambda: len(node.kubelet.registrations) > 1)
            fill(state / "fill")
        yield
    finally:
        await node.kill()
        subprocess.run(["umount", str(state)], check=True)
