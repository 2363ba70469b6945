"""How many of 10,000 random requests find room, by the order in which devices are listed.

``python -m lab.benchmarks.claim_packing [ARRIVALS]``. One node with eight GPUs, MIG devices and
shares by size in random order; each ends after a random time. Kubernetes' scheduler takes the first
device of the listing that fits. Every rule meets the same requests on a node of its own. The
optimum does too: it may move everything that is held at every arrival, which no scheduler can.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import cast

from divvy.model.claim_devices import ClaimDevice, claimable_gpu
from divvy.model.claims import Claims
from divvy.model.gpu_models import MigProfile, gpu_model
from divvy.model.offered_gpu import OfferedGpu
from divvy.model.slice_specs import share_order
from lab.benchmarks.packing_optimum import PackingOptimum, Size

GPUS, ARRIVALS = 8, 10_000
# How long a request holds its device, in arrivals: the optimum then places 100, 98, 88 and 77 %.
LIFETIMES = (16, 24, 32, 40)
_NAMES = ("1g.5gb", "2g.10gb", "3g.20gb")
_MOST_SHARES = 16
# HAMi's default of shares for a GPU, which its score counts.
_HAMI_SLOTS = 10
_MODEL = gpu_model("A100-SXM4-40GB")
_OFFER = Claims.model_validate({"shares": {}, "mig": list(_NAMES)})


@dataclass(frozen=True)
class Arrival:
    """One request: a MIG device of ``profile``, else a share; it ends with arrival ``until``."""

    until: float
    profile: str | None
    size: Size = (0, 0)


@dataclass
class GpuState:
    """What is held of one GPU."""

    offered: OfferedGpu
    used_slices: set[str] = field(default_factory=set)
    compute: int = 0
    memory_mib: int = 0
    cores: int = 0
    claims: int = 0

    @property
    def devices(self) -> Sequence[ClaimDevice]:
        """Return its devices in the order in which Divvy lists them."""
        return self.offered.gpu.devices

    @property
    def is_cut(self) -> bool:
        """Return whether it has MIG devices."""
        return self.compute > 0

    @property
    def part(self) -> Fraction:
        """Return how much of it shares take: their part of the memory and of the time."""
        memory = Fraction(self.memory_mib, self.offered.gpu.devices[0].memory_mib)
        return memory + Fraction(self.cores, 100)

    def fits(self, arrival: Arrival, device: ClaimDevice) -> bool:
        """Return whether a device of it can be given to a request."""
        if device.profile is not None:
            slices = _slices(device)
            compute = self.compute + device.profile.compute_slices
            shared = self.claims and not self.is_cut
            return not shared and compute <= _COMPUTE and self.used_slices.isdisjoint(slices)
        memory, cores = arrival.size
        return (
            not self.is_cut
            and self.claims < _MOST_SHARES
            and self.memory_mib + memory <= device.memory_mib
            and self.cores + cores <= 100
        )

    def hold(self, arrival: Arrival, device: ClaimDevice, sign: int) -> None:
        """Give a device to a request, or take it back (``sign`` -1)."""
        self.claims += sign
        if device.profile is None:
            self.memory_mib += sign * arrival.size[0]
            self.cores += sign * arrival.size[1]
            return
        self.compute += sign * device.profile.compute_slices
        (self.used_slices.update if sign > 0 else self.used_slices.difference_update)(
            _slices(device)
        )


Rule = Callable[[Sequence[GpuState], Arrival], Sequence[GpuState]]
"""Returns the GPUs of a node in the order in which their devices are tried for a request."""


def spread(gpus: Sequence[GpuState], arrival: Arrival) -> Sequence[GpuState]:
    """Divvy's listing with ``placement: spread``."""
    return gpus if arrival.profile else _listed(gpus, spread=True)


def pack(gpus: Sequence[GpuState], arrival: Arrival) -> Sequence[GpuState]:
    """Divvy's listing with ``placement: pack``."""
    return gpus if arrival.profile else _listed(gpus, spread=False)


def by_index(gpus: Sequence[GpuState], _arrival: Arrival) -> Sequence[GpuState]:
    """One GPU after the other, as NVIDIA's driver lists them."""
    return gpus


def hami_binpack(gpus: Sequence[GpuState], arrival: Arrival) -> Sequence[GpuState]:
    """HAMi's ``gpuSchedulerPolicy: binpack``: the highest score, of equals the last."""
    return sorted(reversed(gpus), key=lambda gpu: -_hami_score(gpu, arrival))


def hami_spread(gpus: Sequence[GpuState], arrival: Arrival) -> Sequence[GpuState]:
    """HAMi's default, ``gpuSchedulerPolicy: spread``: the lowest score, of equals the last."""
    return sorted(reversed(gpus), key=lambda gpu: _hami_score(gpu, arrival))


RULES: dict[str, Rule] = {
    "Divvy, `placement: pack`": pack,
    "Divvy, `placement: spread`": spread,
    "NVIDIA's listing: by GPU, by start": by_index,
    "HAMi's rule `binpack`": hami_binpack,
    "HAMi's rule `spread`": hami_spread,
}


def arrivals(seed: int, number: int, lifetime: float) -> Iterator[Arrival]:
    """Yield random requests: six of ten for MIG devices, the small ones most often."""
    chosen = random.Random(seed)
    for at in range(number):
        until = at + chosen.expovariate(1 / lifetime)
        if chosen.random() < 0.6:
            yield Arrival(until, chosen.choices(_NAMES, (6, 3, 2))[0])
        else:
            size = 256 * chosen.randrange(4, 80), chosen.choice((5, 10, 20, 30, 50))
            yield Arrival(until, None, size)


def placed_by(rule: Rule, requests: Iterator[Arrival]) -> int:
    """Return how many requests find room on a node by a rule."""
    gpus = [GpuState(_offered(index)) for index in range(GPUS)]
    held: list[tuple[Arrival, GpuState, ClaimDevice]] = []
    placed = 0
    for at, arrival in enumerate(requests):
        for ended in [holding for holding in held if holding[0].until <= at]:
            held.remove(ended)
            ended[1].hold(ended[0], ended[2], -1)
        for gpu in rule(gpus, arrival):
            device = next(
                (device for device in _of(gpu, arrival) if gpu.fits(arrival, device)), None
            )
            if device is not None:
                gpu.hold(arrival, device, 1)
                held.append((arrival, gpu, device))
                placed += 1
                break
    return placed


def placed_by_optimum(requests: Iterator[Arrival]) -> int:
    """Return how many requests find room where everything may be moved at each of them."""
    optimum = PackingOptimum(_PROFILES, _COMPUTE, _offered(0).gpu.devices[0].memory_mib)
    held: list[Arrival] = []
    placed = 0
    for at, arrival in enumerate(requests):
        held = [earlier for earlier in held if earlier.until > at]
        arrivals = [*held, arrival]
        mig = [sum(request.profile == name for request in arrivals) for name in _NAMES]
        if optimum.holds(
            GPUS, mig, [request.size for request in arrivals if request.profile is None]
        ):
            held = arrivals
            placed += 1
    return placed


def _listed(gpus: Sequence[GpuState], *, spread: bool) -> Sequence[GpuState]:
    by_uuid = {gpu.offered.uuid: gpu for gpu in gpus}
    offered = [replace(gpu.offered, spread=spread) for gpu in gpus]
    tasks = {uuid: gpu.claims for uuid, gpu in by_uuid.items()}
    parts = {uuid: gpu.part for uuid, gpu in by_uuid.items()}
    return [by_uuid[gpu.uuid] for gpu in share_order(offered, tasks, parts)]


def _hami_score(gpu: GpuState, arrival: Arrival) -> float:
    """Return used slots, cores and memory with the request (HAMi, gpu_policy.go)."""
    memory = gpu.memory_mib + arrival.size[0]
    cores = gpu.cores + arrival.size[1] + 100 * gpu.compute / _COMPUTE
    total = gpu.offered.gpu.devices[0].memory_mib
    return (gpu.claims + 1) / _HAMI_SLOTS + cores / 100 + memory / total + len(gpu.used_slices) / 8


def _of(gpu: GpuState, arrival: Arrival) -> Iterator[ClaimDevice]:
    for device in gpu.devices:
        if (device.profile.name if device.profile else None) == arrival.profile and (
            device.kind != "gpu"
        ):
            yield device


def _slices(device: ClaimDevice) -> list[str]:
    return [name for name in device.consumes or () if name.startswith("memory-slice")]


def _offered(index: int) -> OfferedGpu:
    gpu = claimable_gpu(f"GPU-{index}", _MODEL.memory_mib, _MODEL, _OFFER)
    return OfferedGpu(gpu, index, _MODEL.product, _MODEL.architecture, simulated=True)


_GEOMETRY = _MODEL.mig
assert _GEOMETRY is not None
_COMPUTE = _GEOMETRY.compute_slices
_PROFILES = [cast(MigProfile, _GEOMETRY.profile(name)) for name in _NAMES]


def main(number: int) -> None:
    """Print a table: rules below each other, lifetimes beside each other."""
    best = [placed_by_optimum(arrivals(1, number, lifetime)) for lifetime in LIFETIMES]
    print(f"| {number:,} requests | " + " | ".join(f"{n / number:.0%} fit" for n in best) + " | |")
    print("|---|" + "--:|" * (len(LIFETIMES) + 1))
    for name, rule in RULES.items():
        placed = [placed_by(rule, arrivals(1, number, lifetime)) for lifetime in LIFETIMES]
        parts = [count / most for count, most in zip(placed, best, strict=True)]
        every = sum(placed) / sum(best)
        print(f"| {name} | " + " | ".join(f"{part:.1%}" for part in (*parts, every)) + " |")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ARRIVALS)
