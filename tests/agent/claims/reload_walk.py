"""A node whose driver loses and renumbers GPUs again and again, under claims that come and go.

``python -m tests.agent.claims.reload_walk SEED STEPS``
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

from lab.cluster.flat_file import gpu_uuid
from lab.fakes.agent import NODE, AgentNode
from lab.fakes.dra_kubelet import Failed
from lab.fakes.renumbered import reload_driver
from tests.agent.claims.scene import BY_SIZE, claims_node

_GPUS = 3
_UUIDS = [gpu_uuid(NODE, index) for index in range(_GPUS)]
_RESTING = 8  # steps from one rest to the next
_CALM_SECONDS = 60.0
_CALL_SECONDS = 2.0


def nodes_by_device(node: AgentNode) -> Mapping[str, str]:
    """Return which GPU's node every device of every specification has: name → /dev/nvidia<N>."""
    nodes = {}
    for path in sorted((node.folder / "cdi").glob("*.json")):
        try:
            spec = json.loads(path.read_text())
        except FileNotFoundError:
            continue  # it has just been removed
        for device in spec["devices"]:
            first, *_ = device["containerEdits"]["deviceNodes"]
            nodes[f"{spec['kind']}={device['name']}"] = first["path"]
    return nodes


@dataclass
class ReloadWalk:
    """Steps on one node, and at each rest the truth: which GPU has which device node."""

    node: AgentNode
    random: Random
    order: list[int] = field(default_factory=lambda: list(range(_GPUS)))
    held: dict[str, tuple[Any, str]] = field(default_factory=dict)  # claim → (it, its GPU)
    claims_made: int = 0
    steps: list[str] = field(default_factory=list)

    async def go(self, count: int) -> None:
        for number in range(1, count + 1):
            step = self.random.choices(
                (self.prepare, self.release, self.reload, self.restart), (5, 2, 4, 1)
            )[0]
            self.steps.append(f"{step.__name__} {await step()}")
            await asyncio.sleep(self.random.choice((0, 0, 0.1, 0.5)))
            if number % _RESTING == 0 or number == count:
                await self.rest()
                print(
                    f"{number} of {count} steps, {self.claims_made} claims: nothing broken",
                    flush=True,
                )

    async def prepare(self) -> str:
        uuid = self.random.choice(_UUIDS)
        self.claims_made += 1
        name, share = f"claim-{self.claims_made}", f"{uuid.lower()}-share"
        claim = self.node.api.resources.allocate(name, share, memory="1000Mi", cores="1")
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await self.node.claims.prepare(claim)
        except (Failed, TimeoutError) as problem:
            # The kubelet repeats it, or the pod is deleted: here it is deleted.
            self.held[name] = claim, ""
            return f"{share} {problem!r:.80}"
        self.held[name] = claim, uuid
        return share

    async def release(self) -> str:
        if not self.held:
            return "nothing"
        name = self.random.choice(sorted(self.held))
        claim, _ = self.held[name]
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                await self.node.claims.unprepare(claim)
        except (Failed, TimeoutError) as problem:
            return f"{name} {problem!r:.80}"
        del self.held[name]
        return name

    async def reload(self) -> str:
        """Load the driver again, with some of the GPUs; as a rule no agent has it open."""
        count = self.random.choice((1, 2, 2, _GPUS, _GPUS))
        self.order = self.random.sample(range(_GPUS), count)
        away = self.random.random() < 0.7
        if away:
            await self.node.kill()
        reload_driver(self.node.driver, self.order)
        if away:
            await self.node.start()
        return f"{self.order} {'without the agent' if away else ''}"

    async def restart(self) -> str:
        await self.node.kill()
        await self.node.start()
        return ""

    async def rest(self) -> None:
        for name in [name for name, (_, uuid) in self.held.items() if not uuid]:
            async with asyncio.timeout(_CALM_SECONDS):
                while name in self.held:
                    claim, _ = self.held[name]
                    try:
                        await self.node.claims.unprepare(claim)
                        del self.held[name]
                    except Failed:  # the agent is starting
                        await asyncio.sleep(0.1)
        try:
            await self.node.until(lambda: not self.difference(), _CALM_SECONDS)
        except AssertionError as error:
            steps = "\n".join(self.steps)
            raise AssertionError(f"{self.difference()}\n{steps}\n{error}") from None

    def difference(self) -> str:
        """Return what a container would be given that is not its own, or lacks."""
        nodes = nodes_by_device(self.node)
        truth = {_UUIDS[gpu]: f"/dev/nvidia{minor}" for minor, gpu in enumerate(self.order)}
        for name, path in nodes.items():
            owner = next(uuid for uuid in _UUIDS if uuid in name)
            if truth.get(owner) != path:
                return f"{name} has {path}, its GPU has {truth.get(owner)}"
        described = {name for name in nodes if name.startswith("divvy.gpu/claim=")}
        for claim, uuid in self.held.values():
            uid = claim["metadata"]["uid"]
            has = any(name.startswith(f"divvy.gpu/claim={uid}_") for name in described)
            if uuid and has != (uuid in truth):
                return f"claim {uid} of {uuid} has {'a' if has else 'no'} specification: {truth}"
        missing = [uuid for uuid in truth if f"divvy.gpu/gpu={uuid}" not in nodes]
        return f"{missing} are not described" if missing else ""


async def walk(seed: int, steps: int) -> None:
    """Walk on a node of its own; raises AssertionError."""
    async with claims_node(_GPUS, BY_SIZE) as node:
        await ReloadWalk(node, Random(seed)).go(steps)


if __name__ == "__main__":
    asyncio.run(walk(int(sys.argv[1]), int(sys.argv[2])))
