"""What must be true of a node at every instant, judged without the agent's code.

Its sources: `divvy-sim show`, the kubelet's own truth of who holds what, the lists that the
kubelet has, the evictions that the API was asked for, and the agent as a process.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import zip_longest

from lab.cluster.flat_file import gpu_uuid
from lab.fakes.agent import NODE, AgentNode
from lab.fakes.device_manager import Pod
from tests.agent.walk.choices import max_kept
from tests.agent.walk.clock import NodeClock
from tests.agent.walk.layouts import Layout
from tests.agent.walk.memory import Memory

_MAX_GONE = 1.0  # how long a device of an untouched GPU may be gone


class Broken(AssertionError):
    """An invariant does not hold: which, of what."""


@dataclass(frozen=True)
class Board:
    """A GPU as the simulated driver shows it; ``parts`` maps MIG UUIDs to (profile, start)."""

    uuid: str
    mig: bool
    parts: Mapping[str, tuple[str, int]]
    lost: bool = False


def boards(node: AgentNode) -> list[Board]:
    """Read the driver's own state, in the order in which it had the GPUs at first."""
    cards = {card.uuid: card for card in _shown(node)}
    first = (gpu_uuid(NODE, index) for index in range(node.gpus))
    return [cards.get(uuid, Board(uuid, False, {}, lost=True)) for uuid in first]


def device_nodes(node: AgentNode) -> dict[str, str]:
    """Return which device node each GPU has that the driver has found: by UUID."""
    return {card.uuid: f"/dev/nvidia{minor}" for minor, card in enumerate(_shown(node))}


def _shown(node: AgentNode) -> list[Board]:
    program = str(node.driver / "usr/bin/divvy-sim")
    text = subprocess.run([program, "show"], capture_output=True, text=True, check=True).stdout
    cards: list[Board] = []
    place = ("", 0)
    for line in text.splitlines():
        if match := re.match(r"gpu \d+ (\S+) .* MIG (on|off)", line):
            cards.append(Board(match[1], match[2] == "on", {}, ", lost" in line))
        elif match := re.match(r"  gi \d+ (\S+) slices (\d+):", line):
            place = match[1], int(match[2])
        elif match := re.match(r"    ci .* (MIG-\S+)", line):
            cards[-1] = replace(cards[-1], parts={**cards[-1].parts, match[1]: place})
    return cards


@dataclass
class Expected:
    """What was asked for lately: layouts per GPU, policy, and until when it may still count.

    Times are the node's, as everywhere here (see ``clock``).
    """

    layouts: tuple[Layout, ...]
    policy: str
    until: float = float("inf")


@dataclass
class Oracle:
    """Watches a node; ``excused`` are devices that a step itself took away."""

    node: AgentNode
    expectations: list[Expected]
    excused: set[str] = field(default_factory=set)
    parents: dict[str, str] = field(default_factory=dict)
    profiles: dict[str, str] = field(default_factory=dict)
    settled: set[int] = field(default_factory=set)
    samples: int = 0
    clock: NodeClock = field(init=False)
    memory: Memory = field(init=False)
    _before: list[Board] = field(default_factory=list)
    _gone: dict[int, float] = field(default_factory=dict)
    _touched: dict[int, float] = field(default_factory=dict)
    _evictions: int = 0
    _resets: int = 0
    _log: int = 0

    def __post_init__(self) -> None:
        daemon = self.node.driver / "run/divvy-simd.pid"
        self.memory = Memory(self.node)
        # The agent is one of ours.
        self.clock = NodeClock(lambda: [os.getpid(), int(daemon.read_text())])

    def ask(self, layouts: tuple[Layout, ...], policy: str) -> None:
        """Note another desired state; the one before may still be acted on for a moment."""
        now = self.clock.now
        for expected in self.expectations:
            expected.until = min(expected.until, now + 8)
        self.expectations = [expected for expected in self.expectations if expected.until > now]
        self.expectations.append(Expected(layouts, policy))
        self.touch()

    def linger(self) -> None:
        """The agent may not hear of what was asked for: what counted until now goes on counting."""
        for expected in self.expectations:
            expected.until = float("inf")

    def touch(self, gpu: int | None = None, seconds: float = 3.0) -> None:
        """A step touches a GPU, or all: what is offered may change now, and for some seconds."""
        until = self.clock.now + seconds
        for index in range(16) if gpu is None else (gpu,):
            self.settled.discard(index)
            self._touched[index] = max(until, self._touched.get(index, 0.0))

    def heal(self, gpu: int) -> None:
        """A fault has ended; what was asked while it lasted may be answered now."""
        self._touched[gpu] = 0.0
        self.touch(gpu, 10.0)

    def look(self) -> None:
        """Judge this instant; raises Broken."""
        self.samples += 1
        self.clock.tick()
        # A lost GPU tells nothing of its parts: they are judged again when it is back.
        now = [
            before if board.lost and before.uuid == board.uuid else board
            for board, before in zip_longest(
                boards(self.node), self._before, fillvalue=Board("", False, {})
            )
        ]
        self._before = now
        for board in now:
            for part, (profile, _) in board.parts.items():
                self.parents[part] = board.uuid
                self.profiles[part] = profile
        self.memory.look(self.clock.now)
        held = [
            (pod, resource, device, device.split("::")[0])
            for pod, resource, device in self.node.kubelet.holders()
        ]
        forgotten = [
            (p, "", device, device.split("::")[0]) for p, device in self.memory.forgotten()
        ]
        self._held_devices_exist(now, held + forgotten)
        self._nothing_is_held_twice(held, forgotten)
        self._nothing_is_reset_that_is_held(held)
        self._nothing_is_offered_twice(held)
        self._only_who_must_go_is_evicted(now)
        self._untouched_gpus_stay(now)
        self._the_agent_is_well()

    def _held_devices_exist(self, now: list[Board], held: list[tuple[Pod, str, str, str]]) -> None:
        there = {board.uuid: board for board in now}
        parts = {part for board in now for part in board.parts}
        for pod, _, device, uuid in held:
            if uuid in self.excused:
                continue
            if uuid.startswith("MIG-"):
                if uuid not in parts:
                    raise Broken(f"(a) {device}, held by {pod.name}, was destroyed")
            elif uuid not in there:
                raise Broken(f"(a) {device}, held by {pod.name}, is no GPU of the node")
            elif there[uuid].mig:
                raise Broken(f"(a) {device}, held by {pod.name}, was put into MIG mode")

    def _nothing_is_held_twice(
        self, held: list[tuple[Pod, str, str, str]], forgotten: list[tuple[Pod, str, str, str]]
    ) -> None:
        known = {device: pod for pod, _, device, _ in held}
        for pod, _, device, uuid in forgotten:
            other = known.get(device)
            if other is not None and other.uid != pod.uid and uuid not in self.excused:
                raise Broken(
                    f"(h) {device} was given to {other.name}; {pod.name} holds it, whom the "
                    "kubelet has forgotten"
                )

    def _nothing_is_reset_that_is_held(self, held: list[tuple[Pod, str, str, str]]) -> None:
        path = self.node.folder / "resets"
        lines = path.read_text().splitlines() if path.exists() else []
        fresh, self._resets = lines[self._resets :], len(lines)
        for line in fresh:
            for pod, _, device, uuid in held:
                gpu = self.parents.get(uuid, uuid)
                if uuid not in self.excused and gpu in line:
                    raise Broken(f"(a) {device}, held by {pod.name}, was reset: {line}")

    def _offered(self) -> Iterator[tuple[str, str, str]]:
        """Yield what the kubelet would allocate now: resource, device ID, UUID."""
        for endpoint in self.node.kubelet.endpoints.values():
            if endpoint.alive:
                for device in endpoint.healthy:
                    yield endpoint.resource, device, device.split("::")[0]

    def _nothing_is_offered_twice(self, held: list[tuple[Pod, str, str, str]]) -> None:
        ways: dict[str, set[tuple[str, bool]]] = defaultdict(set)
        for resource, device, uuid in self._offered():
            ways[uuid].add((resource, "::" in device))
        for uuid, offers in ways.items():
            if len(offers) > 1:
                raise Broken(f"(b) {uuid} is offered in two ways: {sorted(offers)}")
            if self.parents.get(uuid) in ways:
                raise Broken(f"(b) {uuid} is offered, and so is the GPU that it is a part of")
        for pod, resource, device, uuid in held:
            if uuid in self.excused:
                continue
            for offer in ways.get(uuid, set()):
                if offer != (resource, "::" in device):
                    raise Broken(
                        f"(b) {device} of {resource}, held by {pod.name}: offered as {offer}"
                    )
            if self.parents.get(uuid) in ways:
                raise Broken(f"(b) {device}, held by {pod.name}: its GPU is offered whole")
            for part in ways:
                if self.parents.get(part) == uuid:
                    raise Broken(f"(b) {device}, held by {pod.name}: its part {part} is offered")

    def _only_who_must_go_is_evicted(self, now: list[Board]) -> None:
        evictions = self.node.api.evictions
        fresh, self._evictions = evictions[self._evictions :], len(evictions)
        by_uid = {pod.uid: pod for pod in self.node.kubelet.pods.values()}
        for name, body in fresh:
            uid = body["deleteOptions"]["preconditions"]["uid"]
            pod = by_uid.get(uid)
            if pod is None:
                continue  # ended meanwhile, the precondition keeps others safe
            if pod.name.split("/")[1] != name:
                raise Broken(f"(c) eviction of {name} with the UID of {pod.name}")
            if not any(
                expected.policy == "evict" and self._must_go(pod, expected, now)
                for expected in self.expectations
            ):
                raise Broken(
                    f"(c) {pod.name} was evicted, holding {self.memory.given.get(pod.uid)}; "
                    f"asked for: {self.expectations}"
                )

    def _must_go(self, pod: Pod, expected: Expected, now: list[Board]) -> bool:
        """Tell whether a pod holds anything that is in the way, by what the kubelet knows or not.

        An agent may remember what a kubelet has forgotten, of all pods or of some.
        """
        known = [
            (pod.uid, resource, device) for pod, resource, device in self.node.kubelet.holders()
        ]
        given = [(uid, *device) for uid, devices in self.memory.given.items() for device in devices]
        return any(self._in_the_way(pod, expected, now, holders) for holders in (known, given))

    def _in_the_way(
        self, pod: Pod, expected: Expected, now: list[Board], holders: list[tuple[str, str, str]]
    ) -> bool:
        """Tell whether a pod must go, by trying every choice of who stays."""
        for board, layout in zip(now, expected.layouts, strict=True):
            # A device that went with the driver a moment ago: the agent may still see it there.
            lost = {uuid for uuid in self.excused if self.parents.get(uuid) == board.uuid}
            uuids = {board.uuid, *board.parts, *lost}
            mine: set[str] = set()
            stays: set[str] = set()
            for holder, resource, device in holders:
                uuid = device.split("::")[0]
                if uuid not in uuids:
                    continue
                if holder == pod.uid:
                    mine.add(uuid)
                profile = self.profiles.get(uuid, "")
                if layout.accepts(profile, resource, "::" in device):
                    stays.add(uuid)
                elif holder == pod.uid:
                    return True
            if not mine or layout.mig is None:
                continue
            best = max_kept(layout.mig, {u: board.parts[u] for u in stays if u in board.parts})
            # It must go in at least one of the best choices.
            if any(not mine & uuids <= set(choice) for choice in best):
                return True
        return False

    def _untouched_gpus_stay(self, now: list[Board]) -> None:
        kubelet = self.node.kubelet
        if not kubelet.alive or kubelet.frozen:
            return
        states = {gpu["uuid"]: gpu["state"] for gpu in self.node.status.get("gpus", [])}
        layouts = self.expectations[-1].layouts
        for index, board in enumerate(now):
            profiles = {board.uuid: "", **{part: name for part, (name, _) in board.parts.items()}}
            offered = sum(
                uuid in profiles
                and layouts[index].accepts(profiles[uuid], resource, "::" in device)
                for resource, device, uuid in self._offered()
            )
            if offered == layouts[index].count:
                self._gone.pop(index, None)
                quiet = self.clock.now > self._touched.get(index, 0.0)
                if states.get(board.uuid) == "Ready" and quiet:
                    self.settled.add(index)
            elif index in self.settled:
                since = self._gone.setdefault(index, self.clock.now)
                if self.clock.now - since > _MAX_GONE:
                    raise Broken(f"(d) devices of GPU {index}, which no step touched, are gone")
            else:
                self._gone.pop(index, None)

    def _the_agent_is_well(self) -> None:
        agent = self.node.agent
        if agent is not None and agent.returncode not in (None, -9, -15, 0):
            raise Broken(f"(e) the agent ended with {agent.returncode}")
        path = self.node.folder / "agent.log"
        with path.open() as log:
            log.seek(self._log)
            text = log.read()
            self._log = log.tell()
        # The NVML process of an agent that was killed has no agent to answer to.
        text = re.sub(r"Traceback(?:(?!Traceback).)*?BrokenPipeError", "", text, flags=re.DOTALL)
        if "Traceback" in text or "internal error" in text:
            raise Broken(f"(e) an error in the agent:\n{text[-3000:]}")
        state = self.node.folder / "state/state.json"
        if state.exists():
            try:
                json.loads(state.read_text())
            except ValueError as error:
                raise Broken(f"(g) state.json is not whole: {error}") from None

    def _misled(self) -> str:
        """Return which specification leads a device to another GPU's node, "" if none does."""
        truth = device_nodes(self.node)
        for path in sorted((self.node.folder / "cdi").glob("*.json")):
            for device in json.loads(path.read_text())["devices"]:
                uuid = self.parents.get(device["name"], device["name"])
                node = device["containerEdits"]["deviceNodes"][0]["path"]
                if truth.get(uuid) != node:
                    return f"{path.name}: {device['name']} has {node} of {truth}"
        return ""

    def as_asked(self) -> str:
        """Return what is not as it was asked for last, "" if everything is."""
        if misled := self._misled():
            return misled
        if self.node.status.get("state") != "Ready":
            return f"the status: {self.node.status.get('state')} {self.node.status.get('reason')}"
        layouts = self.expectations[-1].layouts
        wanted: dict[str, int] = defaultdict(int)
        for board, layout in zip(boards(self.node), layouts, strict=True):
            counts: dict[str, int] = defaultdict(int)
            for profile, _ in board.parts.values():
                counts[profile] += 1
            if board.mig != (layout.mig is not None) or counts != (layout.mig or {}):
                return f"{board} instead of {layout}"
            for profile, number in (layout.mig or {"": 1}).items():
                wanted[layout.resources[profile]] += number * layout.replicas
        offered: dict[str, int] = defaultdict(int)
        for resource, _, _ in self._offered():
            offered[resource] += 1
        return "" if offered == wanted else f"{dict(offered)} instead of {dict(wanted)}"
