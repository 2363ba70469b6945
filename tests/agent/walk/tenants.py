"""The pods of a node on a walk: they come, compute and end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lab.driver_clients.driver_root import HOLDER
from lab.fakes.agent import AgentNode
from lab.fakes.device_manager import AdmissionFailed, Container
from tests.agent.walk.oracle import Oracle, boards


@dataclass
class Tenants:
    """Pods of every kind on one node, and what their programs have open."""

    node: AgentNode
    random: Random
    oracle: Oracle
    processes: list[tuple[str, subprocess.Popen[str]]] = field(default_factory=list)
    tasks: set[asyncio.Task[None]] = field(default_factory=set)
    admitted: int = 0
    _pods: int = 0

    def later(self, seconds: float, act: Callable[[], Any]) -> None:
        """Do something later, while the walk goes on."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            done = act()
            if isinstance(done, Awaitable):
                await done

        self.tasks.add(asyncio.create_task(wait()))

    async def admit(self) -> str:
        """Admit a pod of one of many kinds, while the walk goes on."""
        kubelet = self.node.kubelet
        for _ in range(20):
            offered = sorted(
                {e.resource for e in kubelet.endpoints.values() if e.alive and e.healthy}
            )
            if offered:
                break
            await asyncio.sleep(0.1)
        wanted = self.random.random(), self.random.random(), self.random.random()
        kind = self.random.choice(("plain", "plain", "init", "init", "two", "both", "pair", "mix"))
        if not offered or not kubelet.alive:
            return "nothing to allocate"
        resource = offered[int(wanted[0] * len(offered))]
        other = offered[int(wanted[1] * len(offered))]
        whole = "shared" not in resource and "team" not in resource
        containers = {
            "plain": (Container("main", {resource: 1}),),
            "two": (Container("main", {resource: 2 if whole else 1}),),
            "init": (Container("prepare", {resource: 1}, init=True), Container("main", {})),
            "both": (
                Container("prepare", {resource: 1}, init=True),
                Container("main", {resource: 1}),
            ),
            "pair": (Container("a", {resource: 1}), Container("b", {other: 1})),
            "mix": (Container("main", dict.fromkeys((resource, other), 1)),),
        }[kind]
        self._pods += 1
        name = f"team/pod-{self._pods}"
        kubelet.admission_seconds = self.random.choice((0, 0, 0, 0.3, 2))
        self.later(0, lambda: self._admitted(name, containers, running=wanted[2] < 0.9))
        return f"{name} {kind} {resource} {other}"

    async def _admitted(
        self, name: str, containers: tuple[Container, ...], *, running: bool
    ) -> None:
        with suppress(AdmissionFailed):
            await self.node.kubelet.admit_pod(name, containers, running=running)
            self.admitted += 1

    async def end_pod(self) -> str:
        pods = sorted(self.node.kubelet.pods)
        if not pods:
            return "none"
        name = pods[self.random.randrange(1 << 16) % len(pods)]
        self.end(name)
        return name

    def end(self, name: str) -> None:
        for _, process in [process for process in self.processes if process[0] == name]:
            end_process(process)
        self.processes = [process for process in self.processes if process[0] != name]
        self.node.kubelet.end(name)

    async def compute(self) -> str:
        """Let a pod, or a program of the host's, take a context on its device."""
        held = [(pod.name, device) for pod, _, device in self.node.kubelet.holders()]
        choice = self.random.randrange(1 << 16)
        if self.random.random() < 0.1:
            held = [("host", board.uuid) for board in boards(self.node)]
        if not held or len(self.processes) > 4:
            return "none"
        name, device = held[choice % len(held)]
        library = self.node.driver / "usr/lib/x86_64-linux-gnu/libcuda.so.1"
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": device.split("::")[0]}
        process = subprocess.Popen(
            [sys.executable, "-S", str(HOLDER), str(library), "8"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=environment,
        )
        self.processes.append((name, process))
        if name == "host":
            self.later(2.0, lambda: self.end(name))
        return f"{name} on {device}"


def end_process(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()
