"""Which MIG devices of a GPU can stay in a layout, by trying every choice and every place."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations

from tests.model.published_tables import spans

_CARD = "A100-SXM4-40GB"


def max_kept(
    layout: Mapping[str, int], parts: Mapping[str, tuple[str, int]]
) -> list[tuple[str, ...]]:
    """Return every largest choice of parts with which the layout can be made."""
    for count in range(len(parts), -1, -1):
        best = [
            choice
            for choice in combinations(sorted(parts), count)
            if _fits(layout, [parts[uuid] for uuid in choice])
        ]
        if best:
            return best
    return []


def _fits(layout: Mapping[str, int], kept: list[tuple[str, int]]) -> bool:
    table = spans(_CARD)
    rest = dict(layout)
    occupied = 0
    for profile, start in kept:
        if not rest.get(profile):
            return False
        rest[profile] -= 1
        occupied |= next(mask for mask in table[profile] if mask & -mask == 1 << start)
    return _room([name for name, number in rest.items() for _ in range(number)], occupied)


def _room(more: list[str], occupied: int) -> bool:
    """Tell whether these instances have room beside what is taken, by trying every place."""
    if not more:
        return True
    return any(
        not mask & occupied and _room(more[1:], occupied | mask) for mask in spans(_CARD)[more[0]]
    )
