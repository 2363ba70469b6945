"""MIG devices of a node, spread over its GPUs: which layouts could offer them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from itertools import product

from divvy.model import MigGeometry, NoPlacement, place


def spread(
    geometry: MigGeometry, devices: Mapping[str, int], gpus: int
) -> tuple[Mapping[str, int], ...] | None:
    """Return a layout for each of the GPUs that together are these devices, None if none are.

    Every GPU has devices; as few different layouts as a search by the largest finds.
    """
    if gpus > 0 and all(count % gpus == 0 for count in devices.values()):
        layout = {name: count // gpus for name, count in devices.items()}
        if _fits(geometry, layout):
            return (layout,) * gpus
    names = tuple(devices)
    choices = _choices(geometry, devices)

    @cache
    def rest(left: tuple[int, ...], gpus: int, first: int) -> tuple[int, ...] | None:
        """Return which choice each of the GPUs has; none of them is before ``first``."""
        if gpus == 0:
            return () if not any(left) else None
        for number in range(first, len(choices)):
            after = tuple(map(int.__sub__, left, choices[number]))
            if min(after) >= 0:
                result = rest(after, gpus - 1, number)
                if result is not None:
                    return (number, *result)
        return None

    result = rest(tuple(devices.values()), gpus, 0)
    if result is None:
        return None
    return tuple(
        {name: count for name, count in zip(names, choices[number], strict=True) if count}
        for number in result
    )


def fewest_gpus(geometry: MigGeometry, devices: Mapping[str, int]) -> int | None:
    """Return the smallest number of GPUs, up to 16, on which these devices fit; None for none."""
    return next((gpus for gpus in range(1, 17) if spread(geometry, devices, gpus)), None)


def _choices(geometry: MigGeometry, devices: Mapping[str, int]) -> list[tuple[int, ...]]:
    """Return every layout of these devices that a GPU can hold, those with most compute first."""
    known = {name: geometry.profile(name) for name in devices}
    ranges = [
        range(min(count, known_profile.max_count) + 1) if known_profile else range(1)
        for count, known_profile in zip(devices.values(), known.values(), strict=True)
    ]
    slices = [profile.compute_slices if profile else 0 for profile in known.values()]
    choices = [
        counts
        for counts in product(*ranges)
        if any(counts)
        and sum(map(int.__mul__, counts, slices)) <= geometry.compute_slices
        and _fits(geometry, dict(zip(devices, counts, strict=True)))
    ]
    return sorted(choices, key=lambda counts: (-sum(map(int.__mul__, counts, slices)), counts))


def _fits(geometry: MigGeometry, layout: Mapping[str, int]) -> bool:
    if any(geometry.profile(name) is None for name in layout):
        return False
    try:
        place(geometry, {name: count for name, count in layout.items() if count})
    except NoPlacement:
        return False
    return True
