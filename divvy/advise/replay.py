"""Puts recorded pods, in their order, on the GPUs of a candidate: how many it takes, who waits.

`divvy fit`'s packing then judges the busiest moment (``advice``). What comes before is counted in
whole numbers: 180,000 pods for each of several candidates.
"""

from abc import ABC, abstractmethod
from bisect import bisect_left, insort
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate, islice, pairwise
from typing import Any, Protocol

from divvy.advise.candidates import Candidate, Choice, DeviceClass
from divvy.advise.needs import Need, Needs
from divvy.advise.trace import RecordedPod
from divvy.model import MigGeometry, mig_resource
from divvy.model.claims import Shares
from divvy.plan.predict.claimable import BY_CLAIMS

# With more pods that wait at once a profile is out of the question, and nobody waits for an end.
MAX_WAITING = 1000
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
        self._ends = [come + last for come, last in zip(self.arrivals, self.seconds, strict=True)]
        # Two runs in order are merged, not sorted. Of equal moments the ends come first: what ends
        # when another comes leaves its device to it.
        ends = sorted(range(len(pods)), key=self._ends.__getitem__)
        steps = [*(~number for number in ends), *self.order]
        moments = [*map(self._ends.__getitem__, ends), *map(self.arrivals.__getitem__, self.order)]
        places = sorted(range(len(steps)), key=moments.__getitem__)
        self._steps = [steps[place] for place in places]
        self._moments = [moments[place] for place in places]
        self._known_kinds: dict[Needs, list[int]] = {}
        self._known_busiest: dict[Needs, tuple[int, ...]] = {}
        self._known_peaks: dict[tuple[Needs, tuple[bool, ...]], int] = {}

    @property
    def steps(self) -> Iterable[tuple[float, int]]:
        """Return when pods come, by number, and, by ``~number``, go if they have not waited."""
        return zip(self._moments, self._steps, strict=True)

    def running_at(self, moment: float) -> tuple[int, ...]:
        """Return who runs, those that came first at the front."""
        arrivals, ends = self.arrivals, self._ends
        return tuple(number for number in self.order if arrivals[number] <= moment < ends[number])

    def peak(self, needs: Needs, parts: Sequence[float]) -> float:
        """Return the most that runs at once; ``parts`` are what the pods of each kind count for."""
        return max(accumulate(map(_signed(parts).__getitem__, self._kinds(needs))), default=0)

    def busiest(self, needs: Needs) -> tuple[int, ...]:
        """Return who runs when most devices are held."""
        if needs not in self._known_busiest:
            counts = _signed([need.devices for need in needs.kinds])
            running = list(accumulate(map(counts.__getitem__, self._kinds(needs))))
            moment = self._moments[running.index(max(running))] if running else 0.0
            self._known_busiest[needs] = self.running_at(moment)
        return self._known_busiest[needs]

    def peaks(self, needs: Needs, resources: Sequence[str | None]) -> Mapping[str, int]:
        """Return the most devices that are held at once, by what each need asks for."""
        return {
            name: self._peak_of(needs, tuple(resource == name for resource in resources))
            for name in sorted({resource for resource in resources if resource is not None})
        }

    def load(
        self, needs: Needs, parts: Sequence[float], begin: float, seconds: float
    ) -> list[float]:
        """Return the most that runs at once in each of some equal times from ``begin`` on."""
        steps = map(_signed(parts).__getitem__, self._kinds(needs))
        running = [0.0, *accumulate(steps)]
        # The first change of each time; what runs before it counts, too.
        firsts = [
            bisect_left(self._moments, float(time), key=lambda moment: (moment - begin) / seconds)
            for time in range(TIMES)
        ]
        return [
            max(running[first : after + 1])
            for first, after in pairwise([*firsts, len(self._moments)])
        ]

    def crowded(
        self, needs: Needs, choices: Sequence[Choice | None], memory_mib: int, limit: float
    ) -> tuple[int, ...] | None:
        """Return pods that could be on one GPU with others so that its memory is not enough.

        None if there are more than ``limit``.
        """
        crowds = [choice.device.crowd if choice else 0 for choice in choices]
        crowd = max(crowds)
        sizes = [need.memory_mib for need in needs.kinds]
        of_pod = needs.of_pod
        running: list[int] = []
        present: set[int] = set()
        named: set[int] = set()
        for step in self._steps if crowd else ():
            number = step if step >= 0 else ~step
            size = sizes[of_pod[number]]
            if not crowds[of_pod[number]]:
                continue
            if step < 0:
                del running[bisect_left(running, size)]
                present.discard(number)
                continue
            insort(running, size)
            present.add(number)
            if sum(running[-crowd:]) <= memory_mib:
                continue
            # Beside the largest others, whoever makes it too much may be there. Only one that is
            # among the largest makes it so for others, too.
            room = memory_mib - sum(running[-(crowd - 1) :]) if len(running) > crowd else -1
            others = present if size >= running[-crowd:][0] else {number}
            named |= {other for other in others if sizes[of_pod[other]] > room}
            if len(named) > limit:
                return None
        return tuple(sorted(named))

    def _kinds(self, needs: Needs) -> Sequence[int]:
        """Return the kinds of need in the order in which pods come, and, as ``~kind``, go."""
        if needs not in self._known_kinds:
            of_pod = needs.of_pod
            self._known_kinds[needs] = [
                of_pod[step] if step >= 0 else ~of_pod[~step] for step in self._steps
            ]
        return self._known_kinds[needs]

    def _peak_of(self, needs: Needs, asking: tuple[bool, ...]) -> int:
        key = needs, asking
        if key not in self._known_peaks:
            counts = [
                need.devices if asks else 0 for need, asks in zip(needs.kinds, asking, strict=True)
            ]
            self._known_peaks[key] = int(self.peak(needs, counts))
        return self._known_peaks[key]


def _signed(parts: Sequence[float]) -> list[float]:
    """Return parts so that ``~number`` leads to what is taken away."""
    return [*parts, *(-part for part in reversed(parts))]


class _Room(Protocol):
    """The GPUs of a pool, node by node, opened as pods need them.

    ``level`` is a number that grows whenever more is held than ever before.
    """

    level: int

    def size(self, need: Need, choice: Choice) -> Any:
        """Return what a device for a need takes."""

    def take(self, size: Any, devices: int) -> Any:
        """Hold devices and return what gives them back, None if there are none."""

    def give_back(self, held: Any) -> None:
        """Give devices back."""

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

    def size(self, need: Need, choice: Choice) -> str:
        return choice.device.resource

    def take(self, size: str, devices: int) -> Any:
        free = self._free[size]
        node = next((at for at, number in enumerate(free) if number >= devices), None)
        if node is None:
            if len(free) == self._nodes or devices > self._total[size]:
                return None
            node = len(free)
            for name, total in self._total.items():
                self._free[name].append(total)
                self._least[name].append(total)
        free[node] -= devices
        least = self._least[size]
        if free[node] < least[node]:
            least[node] = free[node]
            self.level += 1
        return free, node, devices

    def give_back(self, held: Any) -> None:
        free, node, devices = held
        free[node] += devices

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


class _Gpus(ABC):
    """GPUs that claims divide, in the order in which they are opened."""

    def __init__(self, gpus: int, nodes: int) -> None:
        self._gpus, self._most = gpus, gpus * nodes
        self._opened: set[int] = set()
        self.level = 0

    def take(self, size: Any, devices: int) -> Any:
        if devices == 1:
            device = self._put(size, 0, self._most)
            if device is None:
                return None
            if device[0] not in self._opened:
                self._open(device[0])
            return (device,)
        # All devices of a pod are on one node, some of them maybe on one GPU.
        for first in range(0, self._most, self._gpus):
            held: list[tuple[int, Any]] = []
            while len(held) < devices:
                device = self._put(size, first, first + self._gpus)
                if device is None:
                    break
                held.append(device)
            else:
                for gpu, _ in held:
                    self._open(gpu)
                return held
            self.give_back(held)
        return None

    def give_back(self, held: Any) -> None:
        for gpu, part in held:
            self._off(gpu, part)

    def _open(self, gpu: int) -> None:
        self._opened.add(gpu)
        self.level = len(self._opened)

    @property
    def opened(self) -> tuple[int, int]:
        # A pod of several GPUs may pass by some that never hold one.
        return self.level, len({gpu // self._gpus for gpu in self._opened})

    @abstractmethod
    def size(self, need: Need, choice: Choice) -> Any: ...

    @abstractmethod
    def _put(self, size: Any, first: int, end: int) -> tuple[int, Any] | None:
        """Take a size of the first of some GPUs with room for it; return the GPU and what it is."""

    @abstractmethod
    def _off(self, gpu: int, part: Any) -> None: ...


class _Shares(_Gpus):
    """GPUs that are claimed by size."""

    def __init__(self, shares: Shares, memory_mib: int, gpus: int, nodes: int) -> None:
        super().__init__(gpus, nodes)
        self._all = shares.memory.of_gpu(memory_mib), 100, shares.max
        self._memory, self._cores, self._turns = ([part] * self._most for part in self._all)

    def size(self, need: Need, choice: Choice) -> tuple[int, int, int]:
        return self._all if choice.device.whole else (need.memory_mib, need.cores, 1)

    def _put(self, size: tuple[int, int, int], first: int, end: int) -> tuple[int, Any] | None:
        memory, cores, turns = size
        free_cores, free_turns = self._cores, self._turns
        for gpu, free in enumerate(islice(self._memory, first, end), first):
            if free >= memory and free_cores[gpu] >= cores and free_turns[gpu] >= turns:
                self._memory[gpu] -= memory
                free_cores[gpu] -= cores
                free_turns[gpu] -= turns
                return gpu, size
        return None

    def _off(self, gpu: int, part: Any) -> None:
        memory, cores, turns = part
        self._memory[gpu] += memory
        self._cores[gpu] += cores
        self._turns[gpu] += turns


class _Instances(_Gpus):
    """GPUs whose MIG devices are made when pods claim them, each from its lowest start.

    What a GPU holds is its memory slices as bits, and above them the number of its compute slices.
    """

    def __init__(self, geometry: MigGeometry | None, gpus: int, nodes: int) -> None:
        super().__init__(gpus, nodes)
        self._geometry = geometry
        self._slices = geometry.memory_slices if geometry else 1
        self._compute = geometry.compute_slices if geometry else 1
        self._held = [0] * self._most
        self._placements: dict[str, list[int]] = {}
        self._full: dict[str, int] = {}

    def size(self, need: Need, choice: Choice) -> str:
        resource = choice.device.resource
        if resource not in self._placements:
            self._full[resource] = 0
            self._placements[resource] = self._placed(resource)
        return resource

    def _put(self, size: str, first: int, end: int) -> tuple[int, Any] | None:
        placements = self._placements[size]
        # No GPU before this one has room.
        first = max(first, self._full[size]) if end == self._most else first
        for gpu, held in enumerate(islice(self._held, first, end), first):
            if part := placements[held]:
                if end == self._most:
                    self._full[size] = gpu
                self._held[gpu] += part
                return gpu, part
        return None

    def _off(self, gpu: int, part: Any) -> None:
        self._held[gpu] -= part
        for resource, full in self._full.items():
            if full > gpu:
                self._full[resource] = gpu

    def _placed(self, resource: str) -> list[int]:
        """Return what a GPU would hold more, by what it holds; 0 where it has no room."""
        slices, compute = self._slices, self._compute
        starts: tuple[int, ...] = (0,)
        for profile in self._geometry.profiles if self._geometry else ():
            if mig_resource(profile.name) + BY_CLAIMS == resource:
                slices, compute = profile.memory_slices, profile.compute_slices
                starts = profile.starts
        return [
            self._place(held, slices, compute, starts)
            for held in range((self._compute + 1) << self._slices)
        ]

    def _place(self, held: int, slices: int, compute: int, starts: Sequence[int]) -> int:
        if (held >> self._slices) + compute > self._compute:
            return 0
        for start in starts:
            mask = ((1 << slices) - 1) << start
            if not held & mask:
                return mask | compute << self._slices
        return 0


def _room(candidate: Candidate, nodes: int) -> _Room:
    claims, gpus = candidate.claims, candidate.node.gpus
    if claims is None:
        return _Devices(candidate, nodes)
    if claims.shares is not None:
        return _Shares(claims.shares, gpus[0].model.memory_mib, len(gpus), nodes)
    return _Instances(gpus[0].model.mig, len(gpus), nodes)


def fill(candidate: Candidate, devices: Mapping[str, int]) -> tuple[int, int]:
    """Return how many GPUs and nodes it takes to hold so many devices of each resource at once.

    A lower bound where pods have several, and all that a replay finds where each has one: a device
    of a resource is as good as any other.
    """
    room = _Devices(candidate, sum(devices.values()))
    for known in candidate.classes:
        for _ in range(devices.get(known.resource, 0)):
            room.take(known.resource, 1)
    return room.opened


# The size of a device and how many of it a need asks for; None where it is refused.
_Request = tuple[Any, int] | None


def _requests(
    room: _Room, needs: Iterable[Need], choices: Iterable[Choice | None]
) -> Sequence[_Request]:
    """Return what each need asks a room for."""
    pairs = zip(needs, choices, strict=True)
    return [(room.size(need, choice), need.devices) if choice else None for need, choice in pairs]


def _last_opened(room: _Room, timeline: Timeline, requests: Sequence[_Request]) -> float | None:
    """Give pods what they ask for as they come; return when the last GPU was taken.

    None if a pod finds nothing free.
    """
    held: dict[int, Any] = {}
    level, last = 0, 0.0
    for moment, step in timeline.steps:
        if step < 0:
            if ~step in held:
                room.give_back(held.pop(~step))
        elif (request := requests[step]) is not None:
            held[step] = room.take(*request)
            if held[step] is None:
                return None
            if room.level != level:
                level, last = room.level, moment
    return last


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
    of_pod, kinds, arrivals = needs.of_pod, needs.kinds, timeline.arrivals
    if candidate.claims is None and all(need.devices == 1 for need in kinds):
        resources = [choice.device.resource if choice else None for choice in choices]
        gpus, opened_nodes = fill(candidate, timeline.peaks(needs, resources))
        if opened_nodes <= nodes:
            return Replay(gpus, opened_nodes, {}, timeline.busiest(needs))
    room = _room(candidate, nodes)
    requests = _requests(room, kinds, choices)
    moment = _last_opened(room, timeline, [requests[kind] for kind in of_pod])
    if moment is not None:
        return Replay(*room.opened, {}, timeline.running_at(moment))
    room = _room(candidate, nodes)
    requests = _requests(room, kinds, choices)
    by_size = candidate.claims is not None
    waiting: deque[int] = deque()
    waited: dict[int, float] = {}
    ends: list[tuple[float, int, Any]] = []
    level, busiest = 0, 0.0

    def begin(number: int, now: float) -> bool:
        request = requests[of_pod[number]]
        assert request is not None
        held = room.take(*request)
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
            refused: dict[tuple[str, int], list[tuple[int, int]]] = {}
            for _ in range(len(waiting)):
                number = waiting.popleft()
                need, choice = kinds[of_pod[number]], choices[of_pod[number]]
                assert choice is not None
                size = (need.memory_mib, need.cores) if by_size else (0, 0)
                # Where less found nothing, more finds nothing either.
                less = refused.setdefault((choice.device.resource, need.devices), [])
                if any(memory <= size[0] and cores <= size[1] for memory, cores in less):
                    waiting.append(number)
                elif begin(number, moment):
                    waited[number] = moment - arrivals[number]
                else:
                    less.append(size)
                    waiting.append(number)

    for number in timeline.order:
        if requests[of_pod[number]] is None:
            continue
        now = arrivals[number]
        while ends and ends[0][0] <= now:
            if waiting:
                end(now)
            else:
                room.give_back(heappop(ends)[2])
        if not begin(number, now):
            waiting.append(number)
            if len(waiting) > MAX_WAITING:
                break
        if room.level != level:
            level, busiest = room.level, now
    else:
        end(float("inf"))
    gpus, opened_nodes = room.opened
    waited |= dict.fromkeys(waiting, float("inf"))
    return Replay(gpus, opened_nodes, waited, timeline.running_at(busiest))
