"""Kills of a node's agent, MPS daemon and server: python -m tests.agent.mps.kills NUMBER SEED.

With a version of the driver as a third argument, on that: from 615 on MPS has its version 3.

The real agent's process and the simulated driver's daemon, killed at random instants, also before
they have recovered from the kill before. Checked on the way:

* A GPU whose agent is dead has the compute mode that it had, or the record to restore it.
* A daemon's death withdraws its GPU's shares, and they come back with one daemon in the right mode.
* A kill of the agent alone harms no client.
* Where the profile goes, nothing is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from time import monotonic

from lab.fakes.agent import VERSION, AgentNode, agent_node
from lab.fakes.device_manager import AdmissionFailed, StartFailed
from lab.fakes.scene import play
from tests.agent.mps.mps_node import (
    GPU,
    MPS,
    SHARED,
    ask,
    container,
    daemon,
    daemons_of,
    end,
    exit_code,
    modes,
    nothing_is_left,
    record,
)

_REPLICAS = 4
_PAUSE_SECONDS = 1.0
_WITHDRAWN_SECONDS = 3.0
# A daemon that ends again and again is started after up to a minute.
_BACK_SECONDS = 100.0
_ROUNDS_OF_A_PROFILE = 12
_TRIES = 20
_VICTIMS = ("agent", "agent", "agent and daemon", "daemon", "daemon", "server")


class Walk:
    """One node, what has been killed of it, and how long it took to recover."""

    def __init__(self, node: AgentNode, number: int, seed: int) -> None:
        self.node = node
        self.random = random.Random(seed)
        self.left = number
        self.killed: Counter[str] = Counter()
        self.withdrawn = 0.0
        self.back = 0.0

    async def run(self) -> None:
        """Kill until the number is reached; raises AssertionError if a promise is broken."""
        rounds = 0
        while self.left > 0:
            await self._round()
            rounds += 1
            if rounds % _ROUNDS_OF_A_PROFILE == 0 or self.left <= 0:
                await self._leave()
        self.killed["rounds"] = rounds

    async def _round(self) -> None:
        client = await self._client() if self.random.random() < 0.5 else None
        victims = [self.random.choice(_VICTIMS) for _ in range(self.random.randint(1, 4))]
        for at, victim in enumerate(victims):
            await asyncio.sleep(self.random.uniform(0, _PAUSE_SECONDS))
            await self._kill(victim, is_first=at == 0)
        if client is not None:
            if set(victims) == {"agent"}:
                assert ask(client, "init") == 0, f"a client failed with its agent\n{self.node.log}"
            end(client)
            self.node.kubelet.end("default/client")
        await self._settle()

    async def _client(self) -> subprocess.Popen[str]:
        for _ in range(_TRIES):
            with contextlib.suppress(AdmissionFailed, StartFailed):
                client = await container(self.node, "default/client", 100)
                assert exit_code(client) == 0, self.node.log
                return client
            # The kubelet has not seen yet that the agent is another one: the next pod is admitted.
            self.node.kubelet.end("default/client")
            await asyncio.sleep(0.1)
            await self._settle()
        raise AssertionError(f"no pod is admitted\n{self.node.log}")

    async def _kill(self, victim: str, *, is_first: bool) -> None:
        if "daemon" in victim:
            self._end("daemon", daemon(self.node))
        if victim == "server":
            servers = set(daemons_of(self.node)) - set(control_daemons(self.node))
            self._end("server", *servers)
        if victim == "daemon" and is_first:
            began = monotonic()
            await self.node.offered(SHARED, 0, _WITHDRAWN_SECONDS)
            self.withdrawn = max(self.withdrawn, monotonic() - began)
        if "agent" in victim:
            await self.node.kill()
            self._count("agent")
            assert modes(self.node) == ["Default"] or record(self.node), "the mode is unknown"
            await asyncio.sleep(self.random.choice((0, self.random.uniform(0, _PAUSE_SECONDS))))
            await self.node.start()

    def _end(self, what: str, *pids: int) -> None:
        for pid in pids:
            try:
                if pid:
                    os.kill(pid, signal.SIGKILL)
                    self._count(what)
            except ProcessLookupError:
                continue

    def _count(self, what: str) -> None:
        self.killed[what] += 1
        self.left -= 1

    async def _settle(self) -> None:
        began = monotonic()
        await self.node.until(self._is_sound, _BACK_SECONDS)
        self.back = max(self.back, monotonic() - began)
        assert modes(self.node) == ["Exclusive_Process"]

    def _is_sound(self) -> bool:
        """Return whether one daemon runs, is the recorded one, and its shares are offered."""
        offers = self.node.kubelet.allocatable(SHARED) == _REPLICAS
        return offers and control_daemons(self.node) == [daemon(self.node)]

    async def _leave(self) -> None:
        self.node.configure({})
        await self.node.offered(GPU, 1)
        nothing_is_left(self.node)
        self.node.configure(MPS)
        await self._settle()


def control_daemons(node: AgentNode) -> list[int]:
    """Return the control daemons of a node; their servers are in their sessions."""
    leaders = []
    for pid in daemons_of(node):
        with contextlib.suppress(ProcessLookupError):
            leaders += [pid] if os.getsid(pid) == pid else []
    return leaders


async def kill_at_random(number: int, seed: int, driver: str = VERSION) -> Walk:
    """Kill so many processes of a node; raises AssertionError if it does not recover."""
    async with agent_node(1, MPS, driver_version=driver) as node:
        await node.offered(SHARED, _REPLICAS)
        walk = Walk(node, number, seed)
        try:
            await walk.run()
        except BaseException:
            print(f"after {dict(walk.killed)} with seed {seed}\n{node.log}")
            raise
        node.configure({})
        await node.offered(GPU, 1)
        nothing_is_left(node)
    return walk


async def _main(number: int, seed: int, driver: str) -> None:
    began = monotonic()
    walk = await kill_at_random(number, seed, driver)
    killed = ", ".join(f"{count} {what}" for what, count in sorted(walk.killed.items()))
    print(
        f"driver {driver}, seed {seed}: {killed}; shares withdrawn within {walk.withdrawn:.2f} s, "
        f"back within {walk.back:.1f} s, {monotonic() - began:.0f} s in all"
    )


if __name__ == "__main__":
    chosen_number, chosen_seed = map(int, sys.argv[1:3])
    chosen_driver = (*sys.argv[3:], VERSION)[0]
    play(lambda: _main(chosen_number, chosen_seed, chosen_driver))
