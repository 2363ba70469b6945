"""GetPreferredAllocation chooses as the advertised vectors say."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import pytest

from divvy.agent.gpu.device_id import physical
from divvy.agent.plugin.preferred_allocation import preferred_allocation
from tests.agent.devices import replicas, whole

CROSS, SAME_CPU, BRIDGE, SWITCH, NVLINK = 10, 20, 30, 50, 100


def links(pairs: dict[tuple[int, int], int], other: int = CROSS) -> dict[frozenset[str], int]:
    return {
        frozenset((f"GPU-{a}", f"GPU-{b}")): pairs.get((a, b), other)
        for a, b in combinations(range(8), 2)
    }


DGX1V = links(
    {
        (0, 1): NVLINK + SWITCH, (4, 5): NVLINK + SWITCH,
        (2, 3): 2 * NVLINK + SWITCH, (6, 7): 2 * NVLINK + SWITCH,
        (0, 3): 2 * NVLINK + BRIDGE, (1, 2): 2 * NVLINK + BRIDGE,
        (4, 7): 2 * NVLINK + BRIDGE, (5, 6): 2 * NVLINK + BRIDGE,
        (0, 2): NVLINK + BRIDGE, (1, 3): NVLINK + BRIDGE,
        (4, 6): NVLINK + BRIDGE, (5, 7): NVLINK + BRIDGE,
        (0, 4): 2 * NVLINK + CROSS, (1, 5): 2 * NVLINK + CROSS,
        (2, 6): NVLINK + CROSS, (3, 7): NVLINK + CROSS,
    }
)  # fmt: skip
RTX8000 = links(
    {
        (0, 3): 2 * NVLINK + CROSS, (1, 2): 2 * NVLINK + CROSS,
        (0, 1): SAME_CPU, (2, 3): SAME_CPU,
    }
)  # fmt: skip


def ask(
    available: str, size: int, required: str = "", of: dict[frozenset[str], int] = DGX1V
) -> str:
    ids = [f"GPU-{number}" for number in available]
    must = [f"GPU-{number}" for number in required]
    return "".join(sorted(x[4:] for x in preferred_allocation(whole(8), ids, must, size, of)))


@pytest.mark.parametrize(
    ("available", "required", "size", "chosen"),
    [
        ("0245", "", 2, "45"),
        ("0456", "", 2, "56"),
        ("031", "", 2, "03"),
        ("014", "", 2, "04"),
        ("01234567", "4", 1, "4"),
        ("01234567", "4", 2, "47"),
        ("01234567", "4", 4, "4567"),
        ("01234567", "0246", 4, "0246"),
        ("1234567", "0123", 4, ""),
        ("01234567", "012345", 4, ""),
        ("12345", "012345", 1, ""),
    ],
)
def test_prefers_whole_gpus_by_their_links(
    available: str, required: str, size: int, chosen: str
) -> None:
    assert ask(available, size, required) == chosen


@pytest.mark.parametrize(
    ("gpus", "size", "sets", "of"),
    [
        ("01234567", 2, ["03", "12", "47", "56"], DGX1V),
        ("0123", 2, ["03", "12"], RTX8000),
        ("01234567", 4, ["0123", "4567"], DGX1V),
    ],
)
def test_leaves_good_sets_for_later_pods(
    gpus: str, size: int, sets: list[str], of: dict[frozenset[str], int]
) -> None:
    for expected in sets:
        chosen = ask(gpus, size, of=of)
        assert chosen == expected
        gpus = "".join(left for left in gpus if left not in chosen)
    assert ask(gpus, size, of=of) == ""


def test_prefers_closely_linked_sets_above_eight_gpus() -> None:
    near = {frozenset((f"GPU-{a}", f"GPU-{b}")): 100 for a, b in combinations(range(8, 12), 2)}
    ids = [f"GPU-{number}" for number in range(16)]
    assert preferred_allocation(whole(16), ids, [], 4, near) == [
        "GPU-8",
        "GPU-9",
        "GPU-10",
        "GPU-11",
    ]
    assert "GPU-0" in preferred_allocation(whole(16), ids, ["GPU-0"], 4, near)


@pytest.mark.parametrize(
    ("gpus", "per_gpu", "size", "policy", "counts"),
    [
        (2, 4, 2, "spread", [1, 1]),
        (2, 4, 2, "pack", [2]),
        (3, 2, 3, "spread", [1, 1, 1]),
        (3, 2, 3, "pack", [1, 2]),
        (2, 4, 4, "spread", [2, 2]),
        (2, 4, 4, "pack", [4]),
        (2, 4, 5, "pack", [1, 4]),
    ],
)
def test_spreads_or_packs_replicas(
    gpus: int, per_gpu: int, size: int, policy: str, counts: list[int]
) -> None:
    resource = replicas(gpus, per_gpu)
    ids = [device.id for device in resource.devices]
    chosen = preferred_allocation(resource, ids, [], size, {}, policy)
    assert sorted(Counter(physical(name) for name in chosen).values()) == counts


def test_counts_replicas_allocated_elsewhere_as_load() -> None:
    free = ["GPU-0::0", "GPU-0::1", "GPU-1::1"]
    chosen = preferred_allocation(replicas(2, 2), free, [], 2, {}, "spread")
    assert sorted(physical(name) for name in chosen) == ["GPU-0", "GPU-1"]


def test_prefers_nothing_when_too_few_are_free() -> None:
    assert preferred_allocation(replicas(1, 2), ["GPU-0::0", "GPU-0::1"], [], 5, {}) == []
