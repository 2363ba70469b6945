"""How many GPUs MIG devices and shares need at the least, found by search."""

from collections.abc import Sequence
from functools import cache
from itertools import product

from divvy.model.gpu_models import MigProfile

# The search for shares gives up after so many steps, and then says that they do not fit.
_MOST_STEPS = 20_000

Size = tuple[int, int]
"""Memory (MiB) and per cent of the time of a share."""


class PackingOptimum:
    """The least number of equal GPUs for what is held, as if all of it could be moved."""

    def __init__(self, profiles: Sequence[MigProfile], compute_slices: int, memory_mib: int):
        self._profiles = tuple(profiles)
        self._compute_slices = compute_slices
        self._memory_mib = memory_mib
        self._mig_gpus = cache(self._least_for_mig)
        every = range(compute_slices + 1)
        feasible = [c for c in product(every, repeat=len(profiles)) if any(c) and self._is_gpu(c)]
        self._fullest = [
            counts
            for counts in feasible
            if not any(other != counts and _holds(other, counts) for other in feasible)
        ]

    def holds(self, gpus: int, mig: Sequence[int], shares: Sequence[Size]) -> bool:
        """Return whether so many GPUs hold ``mig`` devices (a number per profile) and shares."""
        left = gpus - self._mig_gpus(tuple(mig))
        return left >= 0 and self._hold_shares(left, shares)

    def _is_gpu(self, counts: Sequence[int]) -> bool:
        """Return whether one GPU can have so many instances of each profile."""
        wanted = [p for p, n in zip(self._profiles, counts, strict=True) for _ in range(n)]
        if sum(profile.compute_slices for profile in wanted) > self._compute_slices:
            return False
        wanted.sort(key=lambda profile: -profile.memory_slices)
        return _is_placed(wanted, 0)

    def _least_for_mig(self, counts: tuple[int, ...]) -> int:
        if not any(counts):
            return 0
        largest = max(at for at, number in enumerate(counts) if number)
        rests = {
            tuple(max(0, number - capacity) for number, capacity in zip(counts, gpu, strict=True))
            for gpu in self._fullest
            if gpu[largest]
        }
        return 1 + min(self._mig_gpus(rest) for rest in rests)

    def _hold_shares(self, gpus: int, shares: Sequence[Size]) -> bool:
        weight = sorted(shares, key=lambda size: -(size[0] / self._memory_mib + size[1] / 100))
        if sum(share[0] for share in shares) > gpus * self._memory_mib:
            return False
        if sum(share[1] for share in shares) > gpus * 100:
            return False
        free = [[self._memory_mib, 100] for _ in range(gpus)]
        steps = 0

        def place(at: int) -> bool:
            nonlocal steps
            if at == len(weight):
                return True
            steps += 1
            memory, cores = weight[at]
            tried = set()
            for gpu in sorted(free, key=lambda size: size[0] / self._memory_mib + size[1] / 100):
                if steps > _MOST_STEPS:
                    return False
                if gpu[0] < memory or gpu[1] < cores or tuple(gpu) in tried:
                    continue
                tried.add(tuple(gpu))
                gpu[0] -= memory
                gpu[1] -= cores
                if place(at + 1):
                    return True
                gpu[0] += memory
                gpu[1] += cores
            return False

        return place(0)


def _holds(counts: Sequence[int], other: Sequence[int]) -> bool:
    return all(mine >= theirs for mine, theirs in zip(counts, other, strict=True))


def _is_placed(wanted: Sequence[MigProfile], occupied: int) -> bool:
    if not wanted:
        return True
    for start in wanted[0].starts:
        slices = ((1 << wanted[0].memory_slices) - 1) << start
        if not slices & occupied and _is_placed(wanted[1:], occupied | slices):
            return True
    return False
