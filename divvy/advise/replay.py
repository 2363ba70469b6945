"""Puts recorded pods, in their order, on the GPUs of a candidate: how many it takes, who waits.

`divvy fit`'s packing then judges the busiest moment (``advice``). What comes before is counted in
whole numbers: 180,000 pods for each of several candidates.
"""

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any, Protocol

from divvy.advise.candidates import Candidate, Choice, DeviceClass
from divvy.advise.needs import Need, Needs
from divvy.advise.trace import RecordedPod
from divvy.model import MigGeometry, mig_resource
from divvy.model.claims import Shares
from divvy.plan.predict.claimable import BY_CLAIMS


# Into so many equal parts a time is divided for a picture of it.
TIMES = 168


@dataclass(frozen=True)
class Replay:
    """The result of a replay: GPUs and nodes that ever held a pod, and who waited how long (s).

    ``busiest`` are the pods, by number, that ran when the last of those GPUs was taken.
    """

    gpus: int
    nodes: int
    waited: Mapping[int, float]
    busiest: tuple[int, ...]


class Timeline:
    """When pods came and how long they ran: the same for every candidate."""

    def __init__(self, pods: Sequence[RecordedPod], until: float) -> None:
        self.arrivals = [pod.begin - (pod.waited or 0.0) for pod in pods]
        self.seconds = [
            max((until if pod.end is None else pod.end) - pod.begin, 1.0) for pod in pods
        ]
        self.order = sorted(range(len(pods)), key=self.arrivals.__getitem__)
        # What ends at the moment when another comes leaves its device to it.
        ends = [come + last for come, last in zip(self.arrivals, self.seconds, strict=True)]
        moments = [(end, -1, number) for number, end in enumerate(ends)]
        moments += [(come, 0, number) for number, come in enumerate(self.arrivals)]
        moments.sort(key=lambda moment: (moment[0], moment[1]))
        self._steps = [number if step == 0 else ~number for _, step, number in moments]
        self._moments = [moment for moment, _, _ in moments]
        self._ends = ends

    def running_at(self, moment: float) -> tuple[int, ...]:
        """Return who runs, those that came first at the front."""
        return tuple(
            number
            for number in self.order
            if self.arrivals[number] <= moment < self._ends[number]
        )

    def peaks(self, needs: Needs, resources: Sequence[str | None]) -> Mapping[str, int]:
        """Return the most devices that are held at once, by what each need asks for."""
        names = sorted({resource for resource in resources if resource is not None})
        index = {name: number for number, name in enumerate(names)}
        # What asks for nothing is counted, and nobody looks.
        kinds = [len(names) if name is None else index[name] for name in resources]
        counts = [need.count for need in needs.kinds]
        now, most = [0] * (len(names) + 1), [0] * (len(names) + 1)
        of_pod = needs.of_pod
        for step in self._steps:
            if step >= 0:
                kind = of_pod[step]
                now[kinds[kind]] = held = now[kinds[kind]] + counts[kind]
                if held > most[kinds[kind]]:
                    most[kinds[kind]] = held
            else:
                kind = of_pod[~step]
                now[kinds[kind]] -= counts[kind]
        return {name: most[number] for name, number in index.items()}

    def load(
        self, parts: Sequence[float], of_pod: Sequence[int], begin: float, seconds: float
    ) -> list[float]:
        """Return the most that runs at once in each of some equal times from ``begin`` on.

        ``parts`` are what the pods of each kind count for.
        """
        most = [0.0] * TIMES
        now, at = 0.0, 0
        for step, moment in zip(self._steps, self._moments, strict=True):
            # What runs on counts at every time that begins before the next change.
            until = min(max(int((moment - begin) / seconds), -1), TIMES - 1)
            while at < until:
                at += 1
                most[at] = now
            now += parts[of_pod[step]] if step >= 0 else -parts[of_pod[~step]]
            if now > most[at] and moment >= begin:
                most[at] = now
        for later in range(at + 1, TIMES):
            most[later] = now
        return most

    def crowded(
        self, needs: Needs, choices: Sequence[Choice | None], memory_mib: int
    ) -> Iterator[int]:
        """Yield pods that could be on one GPU with others so that its memory is not enough."""
        crowds = [choice.device.crowd if choice else 0 for choice in choices]
        crowd = max(crowds)
        if not crowd:
            return
        of_pod = needs.of_pod
        running: list[int] = []
        named: set[int] = set()
        present: set[int] = set()
        for step in self._steps:
            number = step if step >= 0 else ~step
            if not crowds[of_pod[number]]:
                continue
            size = needs.kinds[of_pod[number]].memory_mib
            if step < 0:
                del running[bisect_left(running, size)]
                present.discard(number)
                continue
            insort(running, size)
            present.add(number)
            largest = running[-crowd:]
            if sum(largest) <= memory_mib:
                continue
            # Beside the largest others, whoever makes it too much may be there.
            room = memory_mib - sum(running[-(crowd - 1) :])
            named |= {
                other
                for other in present
                if needs.kinds[of_pod[other]].memory_mib > room or len(running) <= crowd
            }
        yield from sorted(named)


_ANY = Need(1, 0, 1, False, "", "share", False)


class _Room(Protocol):
    """The GPUs of a pool, node by node, opened as pods need them."""

    def take(self, need: Need, choice: Choice) -> Any:
        """Hold devices and return what gives them back, None if there are none."""

    def give_back(self, held: Any) -> None:
        """Give devices back."""

    level: int
    """A number that grows whenever more is held than ever before."""

    @property
    def opened(self) -> tuple[int, int]:
        """Return the GPUs and nodes that ever held a pod."""


class _Devices:
    """What the device plugin advertises: so many devices of a resource on each node."""

    def __init__(self, candidate: Candidate, nodes: int) -> None:
        self._classes = candidate.classes
        self._nodes = nodes
        self._total = {known.resource: sum(known.per_gpu) for known in candidate.classes}
        self._free: dict[str, list[int]] = {resource: [] for resource in self._total}
        self._least: dict[str, list[int]] = {resource: [] for resource in self._total}
        self.level = 0

    def take(self, need: Need, choice: Choice) -> Any:
        resource, count = choice.device.resource, need.count
        free = self._free[resource]
        for node, number in enumerate(free):
            if number >= count:
                break
        else:
            if len(free) == self._nodes or count > self._total[resource]:
                return None
            node = len(free)
            for name, total in self._total.items():
                self._free[name].append(total)
                self._least[name].append(total)
        free[node] -= count
        least = self._least[resource]
        if free[node] < least[node]:
            least[node] = free[node]
            self.level += 1
        return free, node, count

    def give_back(self, held: Any) -> None:
        free, node, count = held
        free[node] += count

    @property
    def opened(self) -> tuple[int, int]:
        gpus = sum(
            len(set().union(*(self._gpus(known, node) for known in self._classes)))
            for node in range(len(next(iter(self._free.values()), ())))
        )
        return gpus, len(next(iter(self._free.values()), ()))

    def _gpus(self, known: DeviceClass, node: int) -> set[int]:
        """Return the first GPUs of a node that have the most devices of a class ever held."""
        held = self._total[known.resource] - self._least[known.resource][node]
        gpus = set()
        for gpu, number in enumerate(known.per_gpu):
            if held > 0 and number:
                gpus.add(gpu)
                held -= number
        return gpus


class _Gpus:
    """GPUs that claims divide: ``_on`` holds a device of one of them, or says that it cannot."""

    def __init__(self, gpus: int, nodes: int) -> None:
        self._gpus, self._most = gpus, gpus * nodes
        self.level = 0

    def take(self, need: Need, choice: Choice) -> Any:
        if need.count == 1:
            for gpu in range(self.level):
                if (part := self._on(gpu, need, choice)) is not None:
                    return ((gpu, part),)
            if self.level == self._most:
                return None
            self.level += 1
            part = self._on(self.level - 1, need, choice)
            return None if part is None else ((self.level - 1, part),)
        for first in range(0, self._most, self._gpus):
            held: list[tuple[int, Any]] = []
            # Devices of one pod may be on one GPU.
            for gpu in range(first, first + self._gpus):
                while len(held) < need.count:
                    part = self._on(gpu, need, choice)
                    if part is None:
                        break
                    held.append((gpu, part))
            if len(held) == need.count:
                self.level = max(self.level, held[-1][0] + 1)
                return held
            self.give_back(held)
            if first >= self.level:
                return None
        return None

    def give_back(self, held: Any) -> None:
        for gpu, part in held:
            self._off(gpu, part)

    @property
    def opened(self) -> tuple[int, int]:
        return self.level, -(-self.level // self._gpus)

    def _on(self, gpu: int, need: Need, choice: Choice) -> Any:
        raise NotImplementedError

    def _off(self, gpu: int, part: Any) -> None:
        raise NotImplementedError


class _Shares(_Gpus):
    """GPUs that are claimed by size."""

    def __init__(self, shares: Shares, memory_mib: int, gpus: int, nodes: int) -> None:
        super().__init__(gpus, nodes)
        self._all = shares.memory.of_gpu(memory_mib), 100, shares.max
        self._memory, self._cores, self._turns = (
            [part] * self._most for part in self._all
        )

    def _on(self, gpu: int, need: Need, choice: Choice) -> Any:
        memory, cores, turns = self._all if choice.device.whole else (need.memory_mib, need.cores, 1)
        if self._memory[gpu] < memory or self._cores[gpu] < cores or self._turns[gpu] < turns:
            return None
        self._memory[gpu] -= memory
        self._cores[gpu] -= cores
        self._turns[gpu] -= turns
        return memory, cores, turns

    def _off(self, gpu: int, part: Any) -> None:
        memory, cores, turns = part
        self._memory[gpu] += memory
        self._cores[gpu] += cores
        self._turns[gpu] += turns


class _Instances(_Gpus):
    """GPUs whose MIG devices are made when pods claim them, each from its lowest start."""

    def __init__(self, geometry: MigGeometry | None, gpus: int, nodes: int) -> None:
        super().__init__(gpus, nodes)
        self._slices, self._compute = [0] * self._most, [0] * self._most
        all_slices, all_compute = 1, 1
        self._masks: dict[str, tuple[tuple[int, ...], int]] = {}
        if geometry is not None:
            all_slices, all_compute = (1 << geometry.memory_slices) - 1, geometry.compute_slices
            for profile in geometry.profiles:
                mask = (1 << profile.memory_slices) - 1
                starts = tuple(mask << start for start in profile.starts)
                name = mig_resource(profile.name) + BY_CLAIMS
                self._masks[name] = starts, profile.compute_slices
        self._all = (all_slices,), all_compute

    def _on(self, gpu: int, need: Need, choice: Choice) -> Any:
        masks, compute = self._masks.get(choice.device.resource, self._all)
        if self._compute[gpu] + compute <= self._all[1]:
            for mask in masks:
                if not self._slices[gpu] & mask:
                    self._slices[gpu] |= mask
                    self._compute[gpu] += compute
                    return mask, compute
        return None

    def _off(self, gpu: int, part: Any) -> None:
        mask, compute = part
        self._slices[gpu] ^= mask
        self._compute[gpu] -= compute


def _room(candidate: Candidate, nodes: int) -> _Room:
    claims, gpus = candidate.claims, candidate.node.gpus
    if claims is None:
        return _Devices(candidate, nodes)
    if claims.shares is not None:
        return _Shares(claims.shares, gpus[0].model.memory_mib, len(gpus), nodes)
    return _Instances(gpus[0].model.mig, len(gpus), nodes)


def fill(candidate: Candidate, devices: Mapping[str, int]) -> int:
    """Return how many GPUs it takes to hold so many devices of each resource at once."""
    room = _Devices(candidate, sum(devices.values()))
    for known in candidate.classes:
        for _ in range(devices.get(known.resource, 0)):
            room.take(_ANY, Choice(known))
    return room.opened[0]


def replay(
    candidate: Candidate,
    timeline: Timeline,
    needs: Needs,
    choices: Sequence[Choice | None],
    nodes: int,
) -> Replay:
    """Put pods on so many nodes; those without a choice are refused and left out.

    A pod that finds nothing free waits, and runs as long as it did once it has its devices.
    Later ones that find something do not wait for it, as with the scheduler.
    """
    room = _room(candidate, nodes)
    of_pod, kinds = needs.of_pod, needs.kinds
    waiting: deque[int] = deque()
    waited: dict[int, float] = {}
    ends: list[tuple[float, int, Any]] = []
    level, busiest = 0, 0.0

    def begin(number: int, now: float) -> bool:
        kind = of_pod[number]
        choice = choices[kind]
        assert choice is not None
        held = room.take(kinds[kind], choice)
        if held is None:
            return False
        heappush(ends, (now + timeline.seconds[number], number, held))
        return True

    def end(now: float) -> None:
        """Let go what has ended by now, and whoever waits take its devices at that moment."""
        while ends and ends[0][0] <= now:
            moment = ends[0][0]
            while ends and ends[0][0] == moment:
                room.give_back(heappop(ends)[2])
            refused: set[int] = set()
            for _ in range(len(waiting)):
                number = waiting.popleft()
                # What is like one that found nothing finds nothing either.
                if of_pod[number] in refused or not begin(number, moment):
                    refused.add(of_pod[number])
                    waiting.append(number)
                else:
                    waited[number] = moment - timeline.arrivals[number]

    for number in timeline.order:
        if choices[of_pod[number]] is None:
            continue
        now = timeline.arrivals[number]
        end(now)
        if not begin(number, now):
            waiting.append(number)
        if room.level != level:
            level, busiest = room.level, now
    end(float("inf"))
    gpus, opened_nodes = room.opened
    waited |= dict.fromkeys(waiting, float("inf"))
    return Replay(gpus, opened_nodes, waited, timeline.running_at(busiest))
