"""Allocates claims on a node's GPUs: the search that the scheduler makes."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

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
            self.allocations.remove(allocation)
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
        parts: dict[str, Fraction] = {}
        for gpu in self.gpus:
            shares = [device for device in gpu.devices if device.kind == "share"]
            parts[gpu.uuid] = sum(
                (
                    _part(share, share.memory_mib - share.free_mib, share.cores - share.free_cores)
                    for share in shares
                ),
                Fraction(),
            )
        for claimed in self.allocations[:before]:
            if claimed.device.kind == "share":
                parts[claimed.gpu.uuid] += _part(claimed.device, claimed.memory_mib, claimed.cores)
        return sorted(self.gpus, key=lambda gpu: (-parts[gpu.uuid], -gpu.index))

    def _try(self, request: Request, gpu: ClaimedGpu, device: LiveDevice) -> Allocation | None:
        own = [allocation for allocation in self.allocations if _same(allocation, gpu, device)]
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
        counted = {
            (allocation.gpu.uuid, allocation.device.name): allocation
            for allocation in self.allocations
        }
        for allocation in counted.values():
            # What others hold already has taken its counters.
            if allocation.gpu.uuid == gpu.uuid and not allocation.device.holders:
                used.update(allocation.device.consumes)
        return all(
            gpu.free.get(name, 0) - used[name] >= number for name, number in device.consumes.items()
        )


def _part(share: LiveDevice, memory_mib: int, cores: int) -> Fraction:
    """Return how much of a GPU a share takes, of its memory and of its time, as the agent does."""
    return Fraction(memory_mib, share.memory_mib) + Fraction(cores, share.cores)


def _same(allocation: Allocation, gpu: ClaimedGpu, device: LiveDevice) -> bool:
    return allocation.gpu.uuid == gpu.uuid and allocation.device.name == device.name
