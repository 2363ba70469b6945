"""Allocates claims on a node's GPUs: the search that the scheduler makes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

from divvy.plan.fit.claim_matching import (
    is_kind,
    is_wanted_type,
    share_size,
    too_much,
    unknown_capacity,
)
from divvy.plan.fit.claim_requests import Request
from divvy.plan.fit.live_claims import ClaimedGpu, LiveDevice

# A search that takes longer is given up; the scheduler gives up after ten seconds.
_MOST_STEPS = 20_000


@dataclass(frozen=True)
class Allocation:
    """A device that a claim takes, or a part of it: MiB and per cent of the GPU's time."""

    gpu: ClaimedGpu
    device: LiveDevice
    memory_mib: int = 0
    cores: int = 0

    @cached_property
    def place(self) -> tuple[str, str]:
        """Return the GPU and the device on it, by name."""
        return self.gpu.uuid, self.device.name

    @property
    def words(self) -> str:
        """Return what it is: ``GPU 0: 3,000 MiB, 30 %``."""
        if self.device.kind == "share" and self.memory_mib < self.device.memory_mib:
            return f"GPU {self.gpu.index}: {self.memory_mib:,} MiB, {self.cores} %"
        if self.device.kind == "mig":
            return f"GPU {self.gpu.index}: MIG {self.device.profile}"
        return f"GPU {self.gpu.index}: whole"


@dataclass
class NodeDevices:
    """The GPUs of one node that claims are offered, and what is taken of them.

    With ``spread`` the agent lists the shares of the GPU with the fewest claims first, else those
    of the GPU of which shares take the most, from the last one on.
    """

    gpus: Sequence[ClaimedGpu]
    spread: bool = True
    allocations: list[Allocation] = field(default_factory=list)
    _steps: int = 0

    def claim(self, requests: Sequence[Request]) -> tuple[Allocation, ...] | None:
        """Take devices for all requests of a pod, or none and return None if they do not fit.

        The first way that is found, requests in their order, devices in the order of the slices
        (k8s.io/dynamic-resource-allocation/structured, allocateOne): those of one request are
        distinct and in ascending order.
        """
        self._steps = 0
        before = len(self.allocations)
        if self._search(requests, 0, requests[0].count if requests else 0, 0, before):
            return tuple(self.allocations[before:])
        del self.allocations[before:]
        return None

    def _search(
        self, requests: Sequence[Request], at: int, left: int, start: int, before: int
    ) -> bool:
        if at == len(requests):
            return True
        if left == 0:
            following = at + 1
            count = requests[following].count if following < len(requests) else 0
            return self._search(requests, following, count, 0, before)
        listed = self._listed(requests[at], before)
        for number in range(start, len(listed) - left + 1):
            self._steps += 1
            if self._steps > _MOST_STEPS:
                return False
            allocation = self._try(requests[at], *listed[number])
            if allocation is None:
                continue
            self.allocations.append(allocation)
            if self._search(requests, at, left - 1, number + 1, before):
                return True
            self.allocations.pop()
        return False

    def _listed(self, request: Request, before: int) -> list[tuple[ClaimedGpu, LiveDevice]]:
        """Return the devices of a request's kind in the order in which they are tried.

        The first ``before`` of what is taken was taken by the time the slices were written.
        """
        gpus: Sequence[ClaimedGpu] = self.gpus
        if request.kind == "share":
            gpus = self._spread(before) if self.spread else self._packed(before)
        return [
            (gpu, device)
            for gpu in gpus
            if is_wanted_type(request, gpu)
            for device in gpu.devices
            if is_kind(request, device)
            and not unknown_capacity(request, device)
            and not too_much(request, device)
        ]

    def _spread(self, before: int) -> Sequence[ClaimedGpu]:
        tasks = Counter(claimed.gpu.uuid for claimed in self.allocations[:before])
        tasks.update({gpu.uuid: len(gpu.holders) for gpu in self.gpus})
        return sorted(self.gpus, key=lambda gpu: tasks[gpu.uuid])

    def _packed(self, before: int) -> Sequence[ClaimedGpu]:
        memory, cores = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for claimed in self.allocations[:before]:
            memory[claimed.place] += claimed.memory_mib
            cores[claimed.place] += claimed.cores

        def part(gpu: ClaimedGpu) -> Fraction:
            """Return how much of its memory and of its time shares take, as the agent does."""
            taken = Fraction()
            for share in gpu.devices:
                if share.kind == "share":
                    place = gpu.uuid, share.name
                    mib = share.memory_mib - share.free_mib + memory[place]
                    time = share.cores - share.free_cores + cores[place]
                    taken += Fraction(mib, share.memory_mib) + Fraction(time, share.cores)
            return taken

        return sorted(self.gpus, key=lambda gpu: (-part(gpu), -gpu.index))

    def _try(self, request: Request, gpu: ClaimedGpu, device: LiveDevice) -> Allocation | None:
        place = gpu.uuid, device.name
        own = [allocation for allocation in self.allocations if allocation.place == place]
        if device.taints:
            return None
        if not own and not device.holders and not self._has_counters(gpu, device):
            return None
        if device.kind != "share":
            return None if own or device.holders else Allocation(gpu, device)
        memory, cores = share_size(request, device)
        used = (
            sum(allocation.memory_mib for allocation in own),
            sum(allocation.cores for allocation in own),
        )
        fits = (
            memory <= device.free_mib - used[0]
            and cores <= device.free_cores - used[1]
            and len(own) + len(device.holders) < device.most
        )
        return Allocation(gpu, device, memory, cores) if fits else None

    def _has_counters(self, gpu: ClaimedGpu, device: LiveDevice) -> bool:
        used: Counter[str] = Counter()
        counted = {allocation.place: allocation for allocation in self.allocations}
        for allocation in counted.values():
            # What others hold already has taken its counters.
            if allocation.gpu.uuid == gpu.uuid and not allocation.device.holders:
                used.update(allocation.device.consumes)
        return all(
            gpu.free.get(name, 0) - used[name] >= number for name, number in device.consumes.items()
        )
