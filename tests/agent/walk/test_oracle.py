"""The oracle sees what is broken, and calls nothing broken that is not."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from lab.fakes.agent import AgentNode, agent_node
from lab.fakes.simulator import needs_simulator
from tests.agent.walk import oracle
from tests.agent.walk.choices import max_kept
from tests.agent.walk.layouts import PROFILES
from tests.agent.walk.oracle import Broken, Expected, Oracle
from tests.agent.walk.world import World

GPU = "nvidia.com/gpu"
agent_process = pytest.mark.agent_process


@dataclass
class Watched:
    """A node with one whole GPU, and the oracle that looks at it."""

    node: AgentNode
    oracle: Oracle

    async def look(self, seconds: float) -> None:
        """Look for so many seconds of the node's time; raises Broken."""
        end = self.oracle.clock.now + seconds
        while self.oracle.clock.now < end:
            self.oracle.look()
            await asyncio.sleep(0.05)

    def evict(self, pod: str) -> None:
        body: dict[str, Any] = {"deleteOptions": {"preconditions": {"uid": self.uid(pod)}}}
        self.node.api.evictions.append((pod.split("/")[1], body))

    def uid(self, pod: str) -> str:
        return self.node.kubelet.pods[pod].uid


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    async with agent_node(1, {}) as node:
        at = Watched(node, Oracle(node, [Expected(PROFILES["whole"][1][:1], "wait")]))
        await node.offered(GPU, 1)
        while 0 not in at.oracle.settled:
            await at.look(0.1)
        yield at


@agent_process
@needs_simulator
async def test_misses_devices_that_no_step_took_away() -> None:
    async with watched() as at:
        await at.look(2.0)
        at.node.kubelet.endpoints[GPU].devices = {}
        with pytest.raises(Broken, match=r"\(d\) devices of GPU 0"):
            await at.look(5.0)


@agent_process
@needs_simulator
async def test_accepts_an_agent_that_takes_its_time_to_end() -> None:
    """On a busy machine it serves its devices for seconds more, and is away all the same."""
    async with watched() as at:
        assert at.node.agent is not None
        at.node.agent.send_signal(signal.SIGSTOP)
        asyncio.get_running_loop().call_later(5.0, at.node.agent.send_signal, signal.SIGCONT)
        world = World(at.node, Random(1), at.oracle)  # asks it to end
        ending = asyncio.create_task(world.away())
        while not ending.done():
            await at.look(0.1)
        await at.look(2.0)
        assert at.node.agent.returncode == 0


@agent_process
@needs_simulator
async def test_calls_the_eviction_of_a_pod_without_devices_needless() -> None:
    async with watched() as at:
        await at.node.kubelet.admit("team/train", GPU)
        await at.node.kubelet.admit_pod("team/web", ())
        at.oracle.ask(PROFILES["shared"][1][:1], "evict")
        await at.look(0.2)
        at.evict("team/train")
        at.oracle.look()
        at.evict("team/web")
        with pytest.raises(Broken, match=r"\(c\) team/web was evicted"):
            at.oracle.look()


@agent_process
@needs_simulator
async def test_accepts_the_eviction_of_a_pod_whose_device_the_kubelet_forgot() -> None:
    """The container has the device, and the agent remembers it."""
    async with watched() as at:
        await at.node.kubelet.admit("team/train", GPU)
        await at.look(0.2)
        await at.node.kubelet.stop()
        at.node.kubelet.checkpoint.unlink()
        await at.node.kubelet.start()
        assert at.node.kubelet.held("team/train") == {}
        at.oracle.ask(PROFILES["shared"][1][:1], "evict")
        at.evict("team/train")
        at.oracle.look()


@agent_process
@needs_simulator
@pytest.mark.parametrize("seconds", [0.5, 7.0])
async def test_counts_a_device_as_held_that_the_kubelet_forgot_and_the_agent_saw(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with watched() as at:
        await at.node.kubelet.admit("team/train", GPU)
        await at.look(seconds)
        await at.node.kubelet.stop()
        at.node.kubelet.checkpoint.unlink()
        await at.node.kubelet.start()
        at.oracle.look()
        assert bool(list(at.oracle.memory.forgotten())) == (seconds > 5)
        partitioned = [replace(board, mig=True) for board in oracle.boards(at.node)]
        monkeypatch.setattr(oracle, "boards", lambda _: partitioned)
        if seconds > 5:
            with pytest.raises(Broken, match=r"\(a\) .* team/train, was put into MIG mode"):
                at.oracle.look()


def test_computes_which_holders_can_stay() -> None:
    parts = {"MIG-a": ("1g.5gb", 3), "MIG-b": ("1g.5gb", 6)}
    assert max_kept({"3g.20gb": 1, "1g.5gb": 3}, parts) == [("MIG-a",), ("MIG-b",)]
    assert max_kept({"7g.40gb": 1}, parts) == [()]
    assert max_kept({"4g.20gb": 1, "1g.5gb": 3}, parts) == [("MIG-b",)]
    assert max_kept({"1g.5gb": 2}, parts) == [("MIG-a", "MIG-b")]
