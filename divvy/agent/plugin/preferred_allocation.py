"""Chooses the devices of a resource that a container should get.

Whole GPUs by link score: the choice is the set that leaves the other GPUs the
best partition into sets of the same size (exact up to eight GPUs, greedy with
exchange above). Replicas are spread or packed over what they share; MIG devices
are packed by their parent GPU.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from itertools import combinations

from divvy.agent.gpu.device_id import numeric_order
from divvy.agent.plugin.inventory import Resource

_EXACT_LIMIT = 8


def preferred_allocation(
    resource: Resource,
    available: Sequence[str],
    required: Sequence[str],
    size: int,
    links: Mapping[frozenset[str], int],
    replicas: str = "spread",
) -> list[str]:
    """Return ``size`` device IDs of ``available`` that include ``required``.

    An impossible request (size over what is available, required devices that are
    not available or more than asked) returns an empty list, so that the kubelet
    decides and tells the pod. ``replicas`` is "spread" or "pack".
    """
    free = set(available)
    if size <= 0 or size > len(free) or len(required) > size or not free.issuperset(required):
        return []
    if resource.sharing.is_shared:
        sharers = {device.id: device.uuid for device in resource.devices}
        if resource.sharing.by_mps and size > 1:
            free = _of_one_gpu(sharers, free, required, size)
            if not free:
                return []
        return _by_load(sharers, free, required, size, spread=replicas == "spread")
    if resource.kind == "mig":
        parents = {device.id: device.gpu for device in resource.devices}
        return _by_load(parents, free, required, size, spread=False)
    return _by_links(available, required, size, links)


def _of_one_gpu(
    gpus: Mapping[str, str], free: set[str], required: Sequence[str], size: int
) -> set[str]:
    """Return the free replicas of a GPU that has enough of them, of the others none."""
    of_gpu: dict[str, set[str]] = {}
    for device_id in free:
        of_gpu.setdefault(gpus.get(device_id, device_id), set()).add(device_id)
    # Of several the fullest: a GPU with all of its replicas stays for who asks for more.
    enough = [
        (len(ids), gpu)
        for gpu, ids in of_gpu.items()
        if len(ids) >= size and ids.issuperset(required)
    ]
    return of_gpu[min(enough)[1]] if enough else set()


def _by_load(
    groups: Mapping[str, str],
    free: set[str],
    required: Sequence[str],
    size: int,
    *,
    spread: bool,
) -> list[str]:
    """Pick from the least (spread) or most (pack) loaded group, the least picked on a tie.

    ``groups`` maps every device ID of the resource to what it shares: its GPU or
    MIG device for replicas, its parent GPU for MIG devices.
    """
    candidates: dict[str, list[str]] = {}
    for device_id in sorted(free.difference(required), key=numeric_order, reverse=True):
        candidates.setdefault(groups.get(device_id, device_id), []).append(device_id)
    total = Counter(groups.values())
    load = {group: total[group] - len(ids) for group, ids in candidates.items()}
    picks = dict.fromkeys(candidates, 0)
    chosen = list(required)
    while len(chosen) < size:
        group = min(
            (group for group, ids in candidates.items() if ids),
            key=lambda g: (load[g] if spread else -load[g], picks[g] if spread else 0, g),
        )
        chosen.append(candidates[group].pop())
        load[group] += 1
        picks[group] += 1
    return chosen


def _by_links(
    available: Sequence[str],
    required: Sequence[str],
    size: int,
    links: Mapping[frozenset[str], int],
) -> list[str]:
    if size == 1:
        return [required[0] if required else available[0]]
    gpus = list(dict.fromkeys(available))
    scores = tuple(
        tuple(0 if gpu == other else links.get(frozenset((gpu, other)), 0) for other in gpus)
        for gpu in gpus
    )
    wanted = frozenset(gpus.index(uuid) for uuid in required)
    if len(gpus) <= _EXACT_LIMIT:
        chosen = set(_exact(scores, wanted, size))
    else:
        chosen = _greedy_with_exchange(scores, wanted, size)
    return [gpus[position] for position in sorted(chosen)]


@lru_cache(maxsize=1024)
def _exact(
    scores: tuple[tuple[int, ...], ...], required: frozenset[int], size: int
) -> frozenset[int]:
    """Return the best set of the best partition of all GPUs into sets of ``size``.

    The last sets may be short by what the count leaves over; the chosen set never is.
    """
    count = len(scores)
    inner = _set_scores(scores)
    must = sum(1 << position for position in required)
    best: dict[tuple[int, int, bool], tuple[int, tuple[int, ...]]] = {}

    def partition(mask: int, missing: int, is_satisfied: bool) -> tuple[int, tuple[int, ...]]:
        """Return total and sets of the first best partition of ``mask``.

        ``missing`` seats may stay empty; unless ``is_satisfied`` one full set must hold
        every required GPU. The total is negative if there is no such partition.
        """
        if mask == 0:
            return (0, ()) if is_satisfied else (-1, ())
        key = (mask, missing, is_satisfied)
        if key in best:
            return best[key]
        total = -1
        sets: tuple[int, ...] = ()
        lowest = mask & -mask
        others = [bit for bit in range(count) if mask & ~lowest & (1 << bit)]
        for short in range(min(missing, size - 1) + 1):
            for group in combinations(others, size - short - 1):
                chosen = lowest | sum(1 << bit for bit in group)
                good = is_satisfied or (short == 0 and must & ~chosen == 0)
                tail, rest = partition(mask & ~chosen, missing - short, good)
                if tail >= 0 and inner[chosen] + tail > total:
                    total, sets = inner[chosen] + tail, (chosen, *rest)
        best[key] = total, sets
        return best[key]

    _, sets = partition((1 << count) - 1, -count % size, is_satisfied=False)
    full = [mask for mask in sets if mask.bit_count() == size and must & ~mask == 0]
    chosen = max(full, key=inner.__getitem__)
    return frozenset(position for position in range(count) if chosen & (1 << position))


def _set_scores(scores: tuple[tuple[int, ...], ...]) -> list[int]:
    """Return the sum of pair scores of every subset, by its bit mask."""
    count = len(scores)
    inner = [0] * (1 << count)
    for mask in range(1, 1 << count):
        top = mask.bit_length() - 1
        below = mask & ~(1 << top)
        inner[mask] = inner[below] + sum(
            scores[top][position] for position in range(top) if below & (1 << position)
        )
    return inner


def _greedy_with_exchange(
    scores: tuple[tuple[int, ...], ...], required: Collection[int], size: int
) -> set[int]:
    """Grow a set by the closest GPU, then swap members while that brings it closer together."""
    count = len(scores)
    chosen = set(required)
    if not chosen:
        pairs = list(combinations(range(count), 2))
        first, other = max(pairs, key=lambda pair: (scores[pair[0]][pair[1]], -pair[0], -pair[1]))
        chosen = {first, other}
    pull = [sum(scores[other][member] for member in chosen) for other in range(count)]
    while len(chosen) < size:
        outside = (other for other in range(count) if other not in chosen)
        nearest = max(outside, key=lambda other: (pull[other], -other))
        chosen.add(nearest)
        for other in range(count):
            pull[other] += scores[other][nearest]
    for _ in range(count):
        gain, leaver, joiner = max(
            (
                (pull[outside] - scores[outside][member] - pull[member], -member, -outside)
                for member in chosen
                if member not in required
                for outside in range(count)
                if outside not in chosen
            ),
            default=(0, 0, 0),
        )
        if gain <= 0:
            break
        chosen.symmetric_difference_update({-leaver, -joiner})
        for other in range(count):
            pull[other] += scores[other][-joiner] - scores[other][-leaver]
    return chosen
