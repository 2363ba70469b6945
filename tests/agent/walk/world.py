"""A node on a walk, and everything that can happen to it."""

from __future__ import annotations

import asyncio
import json
import subprocess
import uuid as uuids
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from divvy.model import canonical_json
from lab.cluster.flat_file import gpu_uuid
from lab.driver_clients.driver_root import OTHER_VERSION
from lab.fakes.agent import MODEL, NODE, VERSION, AgentNode
from lab.fakes.renumbered import reload_driver
from tests.agent.walk.layouts import GPUS, PROFILES
from tests.agent.walk.oracle import boards
from tests.agent.walk.tenants import Tenants, end_process
from tests.agent.widened import widened

_LABEL = "divvy.gpu/profile"


@dataclass
class World(Tenants):
    """One node with its kubelet, its API and its GPUs, and what was asked for of it."""

    profile: str = "whole"
    label: str | None = None
    policy: str = "wait"
    driver: str = VERSION
    order: list[int] = field(default_factory=lambda: list(range(GPUS)))
    _moving: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def edit(self) -> str:
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

    async def flip_label(self) -> str:
        self.label = self.random.choice((None, None, *PROFILES))
        self._ask()
        self.node.api.label(**{_LABEL: self.label})
        return str(self.label)

    async def settle(self) -> str:
        """Let the node come to where it wants to be: what hurts most comes after."""
        for seconds in range(40):
            if len(self.oracle.settled) == GPUS:
                return f"after {seconds / 10} s"
            await asyncio.sleep(0.1)
        return "not in time"

    async def restart_kubelet(self) -> str:
        seconds = self.random.choice((0, 0, 0.5, 2.0))
        self.oracle.touch()
        await self.node.kubelet.restart(ready=seconds == 0)
        self.later(seconds, self._kubelet_has_pods)
        return f"has its pods after {seconds} s"

    def _kubelet_has_pods(self) -> None:
        self.node.kubelet.ready = True

    async def stop_kubelet(self) -> str:
        seconds = self.random.choice((0.2, 1.0, 3.0))
        self.oracle.touch()
        async with self._moving:
            await self.node.kubelet.stop()
            await asyncio.sleep(seconds)
            await self.node.kubelet.start()
        return f"for {seconds} s"

    async def freeze_kubelet(self) -> str:
        seconds = self.random.choice((0.3, 1.0, 7.0, 12.0))
        self.node.kubelet.freeze()
        self.later(seconds, self.node.kubelet.thaw)
        return f"for {seconds} s"

    async def slow_kubelet(self) -> str:
        self.node.kubelet.answer_seconds = self.random.choice((0, 0, 0.5, 4.0))
        return f"{self.node.kubelet.answer_seconds} s"

    async def damage_checkpoint(self) -> str:
        """The kubelet has it in memory, and writes it again when a list arrives."""
        self.oracle.memory.disturb(self.oracle.clock.now)
        way = self.random.choice(("deleted", "half", "empty"))
        path = self.node.kubelet.checkpoint
        if way == "deleted":
            path.unlink(missing_ok=True)
        elif path.exists():
            text = path.read_text()
            path.write_text(text[: len(text) // 2] if way == "half" else "")
        return way

    async def kill_agent(self) -> str:
        """Now, or while something changes; it comes back soon."""
        wait = self.random.choice((0, 0, 0.1, 0.3))
        away = self.random.choice((0, 0, 0.5, 2.0))
        await asyncio.sleep(wait)
        async with self._moving:
            await self.away()
            await asyncio.sleep(away)
            await self.node.start()
        return f"after {wait} s for {away} s"

    async def away(self) -> None:
        """End the agent, as a crash or a person does."""
        self.oracle.touch()
        if self.random.random() < 0.3 and self.node.agent is not None:
            with suppress(ProcessLookupError):
                self.node.agent.terminate()
            await self.node.agent.wait()
        await self.node.kill()
        self.oracle.touch()  # it may have taken its time to end

    async def end_both(self) -> str:
        """End agent and kubelet together; the kubelet's checkpoint is lost, damaged or whole."""
        way = self.random.choice(("lost", "lost", "half", "kept"))
        ready = self.random.choice((0, 0, 2.0))
        agent_first = self.random.random() < 0.5
        # Mostly it has seen who holds what, and what it then does about that is a change.
        if self.random.random() < 0.7:
            await self.settle()
            for _ in range(3):
                await self.admit()
            await asyncio.sleep(7)
        async with self._moving:
            await self.away()
            kubelet = self.node.kubelet
            await kubelet.stop()
            if way == "lost":
                kubelet.checkpoint.unlink(missing_ok=True)
            elif way == "half" and kubelet.checkpoint.exists():
                text = kubelet.checkpoint.read_text()
                kubelet.checkpoint.write_text(text[: len(text) // 2])
            kubelet.ready = ready == 0
            if agent_first:
                await self.node.start()
                await asyncio.sleep(self.random.choice((0.1, 1.5)))
            await kubelet.start()
            if not agent_first:
                await self.node.start()
        self.oracle.touch()
        self.later(ready, self._kubelet_has_pods)
        if self.random.random() < 0.7:
            await self.edit()
        else:
            await self.admit()
        first = "agent" if agent_first else "kubelet"
        return f"checkpoint {way}, pods after {ready} s, {first} first"

    async def change_release(self) -> str:
        """Go back to an earlier agent, or forth: the state's file is the other one's."""
        way = self.random.choice(("older", "newer"))
        async with self._moving:
            await self.away()
            path = self.node.folder / "state/state.json"
            if path.exists():
                state = json.loads(path.read_text())
                if way == "older":
                    # Its file is of a version that is not read: the next agent starts without.
                    state["version"] -= 1
                    self.oracle.memory.forget()
                else:
                    state = widened(state)
                path.write_text(json.dumps(state))
            await self.node.start()
        return way

    async def silence_api(self) -> str:
        seconds = self.random.choice((0.5, 3.0, 8.0))
        self.node.api.silent = True
        if self.random.random() < 0.5:
            self.node.api.forget_connections()
        self.oracle.linger()
        self.later(seconds, self.api_back)
        return f"for {seconds} s"

    def api_back(self) -> None:
        self.node.api.silent = False
        self.node.api.drop_connections()

    async def fault(self) -> str:
        gpu = self.random.randrange(GPUS)
        fault = self.random.choice(
            (("lost",), ("xid", "48"), ("xid", "79"), ("slow", "6000"), ("slow", "300"),
             ("code", "16"), ("code", "17"), ("code", "999"), ("no-activation",),
             ("no-activation",))
        )  # fmt: skip
        self.oracle.touch(gpu, float("inf"))
        self._simulate("fault", fault[0], gpu_uuid(NODE, gpu), *fault[1:])
        return f"{fault} GPU {gpu}"

    async def clear(self) -> str:
        gpu = self.random.randrange(GPUS)
        self.heal(gpu)
        return f"GPU {gpu}"

    def heal(self, gpu: int) -> None:
        self.oracle.heal(gpu)
        self._simulate("fault", "clear", gpu_uuid(NODE, gpu))

    def _simulate(self, *arguments: str) -> None:
        with suppress(subprocess.CalledProcessError):  # the driver has lost this GPU
            self.node.simulate(*arguments)

    async def slow_resets(self) -> str:
        seconds = self.random.choice((0, 1, 4))
        (self.node.folder / "reset-seconds").write_text(str(seconds))
        return f"{seconds} s"

    async def full_disk(self) -> str:
        """A folder lies where the agent writes its state: no write succeeds."""
        scratch = self.node.folder / "state/.state.json.new"
        if scratch.is_dir():
            scratch.rmdir()
            return "no more"
        with suppress(OSError):
            scratch.mkdir(parents=True)
        return "full"

    async def lose_device_nodes(self) -> str:
        """Somebody clears the host's /dev: the driver shows no MIG device then."""
        self.oracle.touch()
        nodes = list((self.node.driver / "dev/nvidia-caps").glob("*"))
        for path in nodes:
            path.unlink()
        return str(len(nodes))

    async def reload_driver(self) -> str:
        """Take another version of the driver; MIG instances are lost."""
        self.driver = OTHER_VERSION if self.driver == VERSION else VERSION
        self._lose_instances()
        self.node.simulate("driver", self.driver)
        return self.driver

    async def renumber(self) -> str:
        """Load the driver again: it may find fewer GPUs, in another order. Mostly no agent runs."""
        count = self.random.choice((1, 2, GPUS, GPUS))
        return await self.load(self.random.sample(range(GPUS), count))

    async def load(self, order: list[int]) -> str:
        """Load the driver with these of its GPUs, in this order."""
        away = self.random.random() < 0.7
        async with self._moving:
            if away:
                await self.away()
            self._lose_instances()
            self.oracle.touch(seconds=float("inf"))
            reload_driver(self.node.driver, order)
            self.order = order
            if away:
                await self.node.start()
        return f"{order}{' without the agent' if away else ''}"

    def _lose_instances(self) -> None:
        self.oracle.touch()
        for _, process in self.processes:
            end_process(process)
        self.processes = []
        self.oracle.excused |= {part for board in boards(self.node) for part in board.parts}
        self.oracle.excused |= {
            device.split("::")[0]
            for _, _, device in self.node.kubelet.holders()
            if device.startswith("MIG-")
        }

    async def reboot(self) -> str:
        """End everything; pods come back as the API has them, their containers not running."""
        async with self._moving:
            await self.away()
            await self.node.kubelet.stop()
            self._lose_instances()
            self.node.simulate("driver", self.driver)
            set_boot(self.node, self.random)
            for pod in self.node.kubelet.pods.values():
                pod.running = False
            await self.node.kubelet.start()
            await self.node.start()
        return ""

    async def exchange(self) -> str:
        """The GPUs of the agent's memory were others, in the same slots."""
        self.oracle.memory.forget()
        which = self.random.sample(range(GPUS), self.random.choice((1, GPUS)))
        async with self._moving:
            await self.away()
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

    def remove_unread_states(self) -> None:
        """Do what the status asks an administrator to do with a state that was put aside."""
        for path in self.node.folder.glob("state/state.json.unreadable-*"):
            path.unlink()

    async def forget_state(self) -> str:
        async with self._moving:
            await self.away()
            (self.node.folder / "state/state.json").unlink(missing_ok=True)
            self.oracle.memory.forget()
            await self.node.start()
        return ""


def set_boot(node: AgentNode, random: Random) -> None:
    """Give the node another boot ID."""
    path = node.driver / "proc/sys/kernel/random/boot_id"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{uuids.UUID(int=random.getrandbits(128))}\n")
