"""A walk: steps, a rest now and then, and the oracle's look all the time.

Reproducible by its seed as far as time allows.
"""

from __future__ import annotations

import asyncio
import os
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from lab.driver_clients.driver_root import OTHER_VERSION
from lab.fakes.agent import NODE, AgentNode, simulated_driver
from lab.fakes.api import fake_api
from lab.fakes.dra_kubelet import fake_dra_kubelet
from lab.fakes.kubelet import fake_kubelet
from tests.agent.walk.layouts import GPUS, PROFILES
from tests.agent.walk.oracle import Broken, Expected, Oracle
from tests.agent.walk.tenants import end_process
from tests.agent.walk.world import World, set_boot

_SAMPLE_SECONDS = 0.05
_CALM_SECONDS = 60.0
_RESTING = 50  # steps from one rest to the next


_Step = Callable[[World], Awaitable[str]]
# name → (weight, what it does)
_STEPS: dict[str, tuple[int, _Step]] = {
    "edit the stack file": (14, World.edit),
    "flip the label": (3, World.flip_label),
    "admit": (30, World.admit),
    "settle": (8, World.settle),
    "end a pod": (7, World.end_pod),
    "compute": (3, World.compute),
    "restart the kubelet": (6, World.restart_kubelet),
    "stop the kubelet": (2, World.stop_kubelet),
    "freeze the kubelet": (2, World.freeze_kubelet),
    "slow PodResources": (1, World.slow_kubelet),
    "damage the checkpoint": (2, World.damage_checkpoint),
    "kill the agent": (7, World.kill_agent),
    "end agent and kubelet": (4, World.end_both),
    "change the release": (2, World.change_release),
    "silence the API": (2, World.silence_api),
    "fault": (3, World.fault),
    "clear": (6, World.clear),
    "slow resets": (1, World.slow_resets),
    "full disk": (2, World.full_disk),
    "lose device nodes": (1, World.lose_device_nodes),
    "reload the driver": (1, World.reload_driver),
    "lose and renumber GPUs": (1, World.renumber),
    "reboot": (1, World.reboot),
    "exchange GPUs": (1, World.exchange),
    "forget the state": (1, World.forget_state),
}


@dataclass
class Walk(World):
    """One node on its walk."""

    steps: list[str] = field(default_factory=list)
    steps_taken: int = 0
    _evicted: int = 0

    async def go(self, count: int, on_rest: Callable[[Walk], None]) -> None:
        """Take so many steps and a rest now and then, and tell of each rest; raises Broken."""
        watch = asyncio.create_task(self._watch())
        try:
            await self._rest()
            for number in range(1, count + 1):
                await self._while_well(watch, self._step())
                self.steps_taken = number
                if number % _RESTING == 0 or number == count:
                    await self._while_well(watch, self._rest())
                    on_rest(self)
        finally:
            watch.cancel()
            for task in self.tasks:
                task.cancel()
            await asyncio.gather(watch, *self.tasks, return_exceptions=True)
            for _, process in self.processes:
                end_process(process)

    async def _while_well(self, watch: asyncio.Task[None], step: Coroutine[Any, Any, None]) -> None:
        walking = asyncio.create_task(step)
        await asyncio.wait({watch, walking}, return_when=asyncio.FIRST_COMPLETED)
        if watch.done():
            walking.cancel()
            await asyncio.gather(walking, return_exceptions=True)
            await watch
        await walking

    async def _watch(self) -> None:
        while True:
            self.oracle.look()
            self._follow_evictions()
            for task in [task for task in self.tasks if task.done()]:
                self.tasks.discard(task)
                task.result()
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _follow_evictions(self) -> None:
        evictions = self.node.api.evictions
        fresh, self._evicted = evictions[self._evicted :], len(evictions)
        for _, body in fresh:
            uid = body["deleteOptions"]["preconditions"]["uid"]
            for pod in list(self.node.kubelet.pods.values()):
                if pod.uid == uid:
                    self.later(self.random.choice((0.1, 1.0, 3.0)), lambda n=pod.name: self.end(n))

    async def _step(self) -> None:
        names = list(_STEPS)
        (name,) = self.random.choices(names, [weight for weight, _ in _STEPS.values()])
        note = f"{name}"
        self.steps.append(note)
        text = await _STEPS[name][1](self)
        self.steps[-1] = f"{note} {text or ''}".strip()
        await asyncio.sleep(self.random.choice((0, 0, 0.05, 0.2, 0.5, 1.2)))

    async def _rest(self) -> None:
        """Let everything end and be well again, and see the node become what was asked for."""
        self.steps.append("rest")
        pending, self.tasks = self.tasks, set()
        await asyncio.wait_for(asyncio.gather(*pending), 60)
        kubelet = self.node.kubelet
        kubelet.ready, kubelet.answer_seconds, kubelet.admission_seconds = True, 0.0, 0.0
        kubelet.thaw()
        self.api_back()
        (self.node.folder / "reset-seconds").write_text("0")
        if (self.node.folder / "state/.state.json.new").is_dir():
            await self.full_disk()
        if len(self.order) < GPUS:
            await self.load(self.random.sample(range(GPUS), GPUS))
        for gpu in range(GPUS):
            self.heal(gpu)
        for name in list(kubelet.pods):
            self.end(name)
        for _, process in self.processes:
            end_process(process)
        self.processes = []
        if self.node.agent is None or self.node.agent.returncode is not None:
            await self.node.start()
        self.configure()
        began, calm = monotonic(), self.oracle.clock.now + _CALM_SECONDS
        while difference := self.oracle.as_asked():
            if self.oracle.clock.now > calm:
                raise Broken(f"(f) after {_CALM_SECONDS:.0f} s of rest: {difference}")
            self.remove_unread_states()
            await asyncio.sleep(0.1)
        self.steps[-1] = f"rest: {monotonic() - began:.1f} s to {self.label or self.profile}"


def _log_resets(node: AgentNode) -> None:
    """Let nvidia-smi note its resets, and take as long for them as it is told."""
    program = node.driver / "usr/bin/nvidia-smi"
    real = program.rename(program.with_name("nvidia-smi.real"))
    (node.folder / "reset-seconds").write_text("0")
    program.write_text(
        "#!/bin/sh\n"
        f'case "$*" in *gpu-reset*) sleep $(cat {node.folder}/reset-seconds)\n'
        f'echo "$*" >> {node.folder}/resets;; esac\n'
        f'exec {real} "$@"\n'
    )
    program.chmod(0o755)


@asynccontextmanager
async def walking(seed: int) -> AsyncIterator[Walk]:
    """Run a node for a walk."""
    async with (
        simulated_driver(GPUS, [OTHER_VERSION]) as folder,
        fake_kubelet(folder) as kubelet,
        fake_dra_kubelet(folder) as claims,
        fake_api(NODE) as api,
    ):
        node = AgentNode(folder, kubelet, claims, api, GPUS)
        node.environment["DIVVY_WATCH_SECONDS"] = "5"
        kubelet.static = ("kube-system/kube-proxy-made-up",)
        random = Random(seed)
        set_boot(node, random)
        _log_resets(node)
        walk = Walk(node, random, Oracle(node, [Expected(PROFILES["whole"][1], "wait")]))
        walk.configure()
        await node.start()
        try:
            yield walk
        finally:
            await node.kill()


async def walk_steps(
    seed: int, count: int, on_rest: Callable[[Walk], None] = lambda _walk: None
) -> Walk:
    """Walk; what breaks is told with the seed, all steps, and the end of the agent's log."""
    async with walking(seed) as walk:
        try:
            await walk.go(count, on_rest)
        except (Broken, TimeoutError, OSError, RuntimeError) as problem:
            log = (walk.node.folder / "agent.log").read_text()
            steps = "\n".join(f"{n:4} {step}" for n, step in enumerate(walk.steps))
            Path(f"/tmp/walk-{seed}.log").write_text(log) if os.environ.get("DIVVY_WALK_LOG") else 0
            raise Broken(
                f"{problem!r}\n{traceback.format_exc()}\n"
                f"seed {seed}, {len(walk.steps)} steps:\n{steps}\n"
                f"status: {walk.node.status}\nlog:\n{log[-4000:]}"
            ) from problem
        return walk
