"""The steps of a walk, and the walk: reproducible by its seed as far as time allows."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import uuid as uuids
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from time import monotonic
from typing import Any

from divvy.model import canonical_json
from tests.agent.walk.layouts import GPUS, PROFILES
from tests.agent.walk.oracle import Broken, Expected, Oracle, boards
from tests.fakes.agent import MODEL, NODE, VERSION, AgentNode, simulated_driver
from tests.fakes.api import fake_api
from tests.fakes.kubelet import AdmissionFailed, Container, fake_kubelet
from tests.simulator.driver_root import HOLDER, OTHER_VERSION

_LABEL = "divvy.gpu/profile"
_SAMPLE_SECONDS = 0.05
_CALM_SECONDS = 60.0
_RESTING = 50  # steps from one rest to the next


@dataclass
class Walk:
    """One node on its walk."""

    node: AgentNode
    random: Random
    oracle: Oracle
    profile: str = "whole"
    label: str | None = None
    policy: str = "wait"
    driver: str = VERSION
    steps: list[str] = field(default_factory=list)
    processes: list[tuple[str, subprocess.Popen[str]]] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    admitted: int = 0
    _pods: int = 0
    _evicted: int = 0
    _moving: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def go(self, count: int) -> None:
        """Take so many steps and a rest now and then; raises Broken."""
        watch = asyncio.create_task(self._watch())
        try:
            await self._rest()
            for number in range(1, count + 1):
                await self._while_well(watch, self._step())
                if number % _RESTING == 0 or number == count:
                    await self._while_well(watch, self._rest())
        finally:
            watch.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(watch, *self._tasks, return_exceptions=True)
            for _, process in self.processes:
                _end(process)

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
            for task in [task for task in self._tasks if task.done()]:
                self._tasks.discard(task)
                task.result()
            await asyncio.sleep(_SAMPLE_SECONDS)

    def _follow_evictions(self) -> None:
        evictions = self.node.api.evictions
        fresh, self._evicted = evictions[self._evicted :], len(evictions)
        for _, body in fresh:
            uid = body["deleteOptions"]["preconditions"]["uid"]
            for pod in list(self.node.kubelet.pods.values()):
                if pod.uid == uid:
                    self._later(
                        self.random.choice((0.1, 1.0, 3.0)), lambda n=pod.name: self._end(n)
                    )

    async def _step(self) -> None:
        names = list(_STEPS)
        (name,) = self.random.choices(names, [weight for weight, _ in _STEPS.values()])
        note = f"{name}"
        self.steps.append(note)
        text = await _STEPS[name][1](self)
        self.steps[-1] = f"{note} {text or ''}".strip()
        await asyncio.sleep(self.random.choice((0, 0, 0.05, 0.2, 0.5, 1.2)))

    def _later(self, seconds: float, act: Callable[[], Any]) -> None:
        """Do something later, while the walk goes on."""

        async def wait() -> None:
            await asyncio.sleep(seconds)
            done = act()
            if isinstance(done, Awaitable):
                await done

        self._tasks.add(asyncio.create_task(wait()))

    # What can happen.

    async def _edit(self) -> str:
        self.profile = self.random.choice(list(PROFILES))
        if self.random.random() < 0.4:
            self.policy = self.random.choice(("wait", "wait", "evict", "never"))
        self.configure()
        return f"{self.profile} {self.policy}"

    def configure(self) -> None:
        """Write the stack file as it is meant now."""
        hardware = {"model": MODEL, "gpus": GPUS, "count": 1}
        stack = {
            "profiles": {name: rule for name, (rule, _) in PROFILES.items()},
            "pools": {"all": {"hardware": hardware, "profile": self.profile}},
            "plugin": {"image": {"registry": "localhost:5000"}},
            "change": {"policy": self.policy, "deadline": self.random.choice(("1s", "3s", "600s"))},
            "health": {"recoverAfter": "1s"},
        }
        self._ask()
        self.node.api.configure(canonical_json(stack))

    def _ask(self) -> None:
        self.oracle.ask(PROFILES[self.label or self.profile][1], self.policy)
        if self.node.api.silent or self.node.agent is None:
            self.oracle.linger()

    async def _flip_label(self) -> str:
        self.label = self.random.choice((None, None, *PROFILES))
        self._ask()
        self.node.api.label(**{_LABEL: self.label})
        return str(self.label)

    async def _admit(self) -> str:
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
        self._later(0, lambda: self._admitted(name, containers, running=wanted[2] < 0.9))
        return f"{name} {kind} {resource} {other}"

    async def _admitted(
        self, name: str, containers: tuple[Container, ...], *, running: bool
    ) -> None:
        with suppress(AdmissionFailed):
            await self.node.kubelet.admit_pod(name, containers, running=running)
            self.admitted += 1

    async def _settle(self) -> str:
        """Let the node come to where it wants to be: what hurts most comes after."""
        for seconds in range(40):
            if len(self.oracle.settled) == GPUS:
                return f"after {seconds / 10} s"
            await asyncio.sleep(0.1)
        return "not in time"

    async def _end_pod(self) -> str:
        pods = sorted(self.node.kubelet.pods)
        if not pods:
            return "none"
        name = pods[self.random.randrange(1 << 16) % len(pods)]
        self._end(name)
        return name

    def _end(self, name: str) -> None:
        for _, process in [each for each in self.processes if each[0] == name]:
            _end(process)
        self.processes = [each for each in self.processes if each[0] != name]
        self.node.kubelet.end(name)

    async def _compute(self) -> str:
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
            self._later(2.0, lambda: self._end(name))
        return f"{name} on {device}"

    async def _restart_kubelet(self) -> str:
        seconds = self.random.choice((0, 0, 0.5, 2.0))
        self.oracle.touch()
        await self.node.kubelet.restart(ready=seconds == 0)
        self._later(seconds, self._kubelet_has_pods)
        return f"has its pods after {seconds} s"

    def _kubelet_has_pods(self) -> None:
        self.node.kubelet.ready = True

    async def _stop_kubelet(self) -> str:
        seconds = self.random.choice((0.2, 1.0, 3.0))
        self.oracle.touch()
        async with self._moving:
            await self.node.kubelet.stop()
            await asyncio.sleep(seconds)
            await self.node.kubelet.start()
        return f"for {seconds} s"

    async def _freeze_kubelet(self) -> str:
        seconds = self.random.choice((0.3, 1.0, 7.0, 12.0))
        self.node.kubelet.freeze()
        self._later(seconds, self.node.kubelet.thaw)
        return f"for {seconds} s"

    async def _slow_kubelet(self) -> str:
        self.node.kubelet.answer_seconds = self.random.choice((0, 0, 0.5, 4.0))
        return f"{self.node.kubelet.answer_seconds} s"

    async def _damage_checkpoint(self) -> str:
        """The kubelet has it in memory, and writes it again when a list arrives."""
        way = self.random.choice(("deleted", "half", "empty"))
        path = self.node.kubelet.checkpoint
        if way == "deleted":
            path.unlink(missing_ok=True)
        elif path.exists():
            text = path.read_text()
            path.write_text(text[: len(text) // 2] if way == "half" else "")
        return way

    async def _kill_agent(self) -> str:
        """Now, or while something changes; it comes back soon."""
        wait = self.random.choice((0, 0, 0.1, 0.3))
        away = self.random.choice((0, 0, 0.5, 2.0))
        await asyncio.sleep(wait)
        async with self._moving:
            await self._away()
            await asyncio.sleep(away)
            await self.node.start()
        return f"after {wait} s for {away} s"

    async def _away(self) -> None:
        self.oracle.touch()
        if self.random.random() < 0.3 and self.node.agent is not None:
            with suppress(ProcessLookupError):
                self.node.agent.terminate()
            await self.node.agent.wait()
        await self.node.kill()

    async def _silence_api(self) -> str:
        seconds = self.random.choice((0.5, 3.0, 8.0))
        self.node.api.silent = True
        if self.random.random() < 0.5:
            self.node.api.forget_connections()
        self.oracle.linger()
        self._later(seconds, self._api_back)
        return f"for {seconds} s"

    def _api_back(self) -> None:
        self.node.api.silent = False
        self.node.api.drop_connections()

    async def _fault(self) -> str:
        gpu = self.random.randrange(GPUS)
        fault = self.random.choice(
            (("lost",), ("xid", "48"), ("xid", "79"), ("slow", "6000"), ("slow", "300"),
             ("code", "16"), ("code", "17"), ("code", "999"), ("no-activation",),
             ("no-activation",))
        )  # fmt: skip
        self.oracle.touch(gpu, float("inf"))
        self.node.simulate("fault", fault[0], str(gpu), *fault[1:])
        return f"{fault} GPU {gpu}"

    async def _clear(self) -> str:
        gpu = self.random.randrange(GPUS)
        self._heal(gpu)
        return f"GPU {gpu}"

    def _heal(self, gpu: int) -> None:
        self.oracle.heal(gpu)
        self.node.simulate("fault", "clear", str(gpu))

    async def _slow_resets(self) -> str:
        seconds = self.random.choice((0, 1, 4))
        (self.node.folder / "reset-seconds").write_text(str(seconds))
        return f"{seconds} s"

    async def _full_disk(self) -> str:
        """A folder lies where the agent writes its state: no write succeeds."""
        scratch = self.node.folder / "state/.state.json.new"
        if scratch.is_dir():
            scratch.rmdir()
            return "no more"
        with suppress(OSError):
            scratch.mkdir(parents=True)
        return "full"

    async def _reload_driver(self) -> str:
        """Take another version of the driver; MIG instances are lost."""
        self.driver = OTHER_VERSION if self.driver == VERSION else VERSION
        self._lose_instances()
        self.node.simulate("driver", self.driver)
        return self.driver

    def _lose_instances(self) -> None:
        self.oracle.touch()
        for _, process in self.processes:
            _end(process)
        self.processes = []
        self.oracle.excused |= {part for board in boards(self.node) for part in board.parts}
        self.oracle.excused |= {
            device.split("::")[0]
            for _, _, device in self.node.kubelet.holders()
            if device.startswith("MIG-")
        }

    async def _reboot(self) -> str:
        """End everything; pods come back as the API has them, their containers not running."""
        async with self._moving:
            await self._away()
            await self.node.kubelet.stop()
            self._lose_instances()
            self.node.simulate("driver", self.driver)
            set_boot(self.node, self.random)
            for pod in self.node.kubelet.pods.values():
                pod.running = False
            await self.node.kubelet.start()
            await self.node.start()
        return ""

    async def _exchange(self) -> str:
        """The GPUs of the agent's memory were others, in the same slots."""
        which = self.random.sample(range(GPUS), self.random.choice((1, GPUS)))
        async with self._moving:
            await self._away()
            path = self.node.folder / "state/state.json"
            if path.exists():
                text = path.read_text()
                for index in which:
                    old = json.loads(text)["assignment"].get(str(index))
                    if old:
                        text = text.replace(
                            old, f"GPU-{uuids.UUID(int=self.random.getrandbits(128))}"
                        )
                path.write_text(text)
            set_boot(self.node, self.random)
            await self.node.start()
        return f"GPUs {which}"

    async def _forget_state(self) -> str:
        async with self._moving:
            await self._away()
            (self.node.folder / "state/state.json").unlink(missing_ok=True)
            await self.node.start()
        return ""

    async def _rest(self) -> None:
        """Let everything end and be well again, and see the node become what was asked for."""
        self.steps.append("rest")
        pending, self._tasks = self._tasks, set()
        await asyncio.wait_for(asyncio.gather(*pending), 60)
        kubelet = self.node.kubelet
        kubelet.ready, kubelet.answer_seconds, kubelet.admission_seconds = True, 0.0, 0.0
        kubelet.thaw()
        self._api_back()
        (self.node.folder / "reset-seconds").write_text("0")
        if (self.node.folder / "state/.state.json.new").is_dir():
            await self._full_disk()
        for gpu in range(GPUS):
            self._heal(gpu)
        for name in list(kubelet.pods):
            self._end(name)
        for _, process in self.processes:
            _end(process)
        self.processes = []
        if self.node.agent is None or self.node.agent.returncode is not None:
            await self.node.start()
        self.configure()
        began = monotonic()
        while said := self.oracle.as_asked():
            if monotonic() - began > _CALM_SECONDS:
                raise Broken(f"(f) after {_CALM_SECONDS:.0f} s of rest: {said}")
            await asyncio.sleep(0.1)
        self.steps[-1] = f"rest: {monotonic() - began:.1f} s to {self.label or self.profile}"


def _end(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


_Step = Callable[[Walk], Awaitable[str]]
# name → (weight, what it does)
_STEPS: dict[str, tuple[int, _Step]] = {
    "edit the stack file": (14, Walk._edit),
    "flip the label": (3, Walk._flip_label),
    "admit": (30, Walk._admit),
    "settle": (8, Walk._settle),
    "end a pod": (7, Walk._end_pod),
    "compute": (3, Walk._compute),
    "restart the kubelet": (6, Walk._restart_kubelet),
    "stop the kubelet": (2, Walk._stop_kubelet),
    "freeze the kubelet": (2, Walk._freeze_kubelet),
    "slow PodResources": (1, Walk._slow_kubelet),
    "damage the checkpoint": (2, Walk._damage_checkpoint),
    "kill the agent": (7, Walk._kill_agent),
    "silence the API": (2, Walk._silence_api),
    "fault": (3, Walk._fault),
    "clear": (6, Walk._clear),
    "slow resets": (1, Walk._slow_resets),
    "full disk": (2, Walk._full_disk),
    "reload the driver": (1, Walk._reload_driver),
    "reboot": (1, Walk._reboot),
    "exchange GPUs": (1, Walk._exchange),
    "forget the state": (1, Walk._forget_state),
}


def set_boot(node: AgentNode, random: Random) -> None:
    """Give the node another boot ID."""
    path = node.driver / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{uuids.UUID(int=random.getrandbits(128))}\n")


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
        fake_api(NODE) as api,
    ):
        node = AgentNode(folder, kubelet, api, GPUS)
        node.environment["DIVVY_WATCH_SECONDS"] = "5"
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


async def walk_steps(seed: int, count: int) -> Walk:
    """Walk; what breaks is told with the seed, all steps, and the end of the agent's log."""
    async with walking(seed) as walk:
        try:
            await walk.go(count)
        except (Broken, TimeoutError, OSError, RuntimeError) as problem:
            log = (walk.node.folder / "agent.log").read_text()
            told = "\n".join(f"{n:4} {step}" for n, step in enumerate(walk.steps))
            Path(f"/tmp/walk-{seed}.log").write_text(log) if os.environ.get("DIVVY_WALK_LOG") else 0
            raise Broken(
                f"{problem!r}\nseed {seed}, {len(walk.steps)} steps:\n{told}\n"
                f"status: {walk.node.status}\nlog:\n{log[-4000:]}"
            ) from problem
        return walk
