"""The MIG tables of the vendor's guide and of real cards, typed by hand, and a brute-force oracle.

Nothing here comes from divvy: a wrong number in its data has to disagree with these.
"""

from itertools import product

# name: (architecture, capability, MiB, SMs, PCI device, subsystem, W, SM MHz, memory MHz, NVLinks)
CARDS = {
    "T4": ("turing", (7, 5), 15360, 40, 0x1EB810DE, 0x12A210DE, 70, 1590, 5001, 0),
    "A30": ("ampere", (8, 0), 24576, 56, 0x20B710DE, 0x153210DE, 165, 1440, 1215, 4),
    "A100-SXM4-40GB": ("ampere", (8, 0), 40960, 108, 0x20B010DE, 0x134F10DE, 400, 1410, 1215, 12),
    "A100-SXM4-80GB": ("ampere", (8, 0), 81920, 108, 0x20B210DE, 0x147F10DE, 400, 1410, 1593, 12),
    "L40S": ("ada", (8, 9), 46068, 142, 0x26B910DE, 0x185110DE, 350, 2520, 9001, 0),
    "H100-SXM5-80GB": ("hopper", (9, 0), 81559, 132, 0x233010DE, 0x16C110DE, 700, 1980, 2619, 18),
    "H200": ("hopper", (9, 0), 143771, 132, 0x233510DE, 0x18BE10DE, 700, 1980, 3201, 18),
    "B200": ("blackwell", (10, 0), 183359, 148, 0x290110DE, 0x199910DE, 1000, 1965, 3996, 18),
}

DEVICE_IDS = {
    "T4": {0x1EB8},
    "A30": {0x20B7},
    "A100-SXM4-40GB": {0x20B0, 0x20B1, 0x20BD, 0x20F1, 0x20F6},
    "A100-SXM4-80GB": {0x20B2, 0x20B5, 0x20F3, 0x20F5},
    "L40S": {0x26B9},
    "H100-SXM5-80GB": {0x2330},
    "H200": {0x2335, 0x233B},
    "B200": {0x2901},
}

# (mode needs a reset, mode survives a reboot)
MODES = {"ampere": (True, True), "hopper": (False, False), "blackwell": (False, False)}

# What nvidia-smi mig -lgip prints: Name, ID, Instances, Memory GiB, SM, CE, DEC, JPEG, OFA
PRINTED = {
    "A30": """
        1g.6gb     14 4  5.81 14 1 1 0 0
        1g.6gb+me  21 1  5.81 14 1 1 1 1
        2g.12gb     5 2 11.69 28 2 2 0 0
        2g.12gb+me  6 1 11.69 28 2 2 1 1
        4g.24gb     0 1 23.44 56 4 4 1 1""",
    "A100-SXM4-40GB": """
        1g.5gb     19 7  4.75 14 1 0 0 0
        1g.5gb+me  20 1  4.75 14 1 1 1 1
        1g.10gb    15 4  9.75 14 1 1 0 0
        2g.10gb    14 3  9.75 28 2 1 0 0
        3g.20gb     9 2 19.62 42 3 2 0 0
        4g.20gb     5 1 19.62 56 4 2 0 0
        7g.40gb     0 1 39.38 98 7 5 1 1""",
    "A100-SXM4-80GB": """
        1g.10gb    19 7  9.50 14 1 0 0 0
        1g.10gb+me 20 1  9.50 14 1 1 1 1
        1g.20gb    15 4 19.50 14 1 1 0 0
        2g.20gb    14 3 19.50 28 2 1 0 0
        3g.40gb     9 2 39.25 42 3 2 0 0
        4g.40gb     5 1 39.25 56 4 2 0 0
        7g.80gb     0 1 78.75 98 7 5 1 1""",
    "H100-SXM5-80GB": """
        1g.10gb    19 7  9.75  16 1 1 1 0
        1g.10gb+me 20 1  9.75  16 1 1 1 1
        1g.20gb    15 4 19.62  26 1 1 1 0
        2g.20gb    14 3 19.62  32 2 2 2 0
        3g.40gb     9 2 39.50  60 3 3 3 0
        4g.40gb     5 1 39.50  64 4 4 4 0
        7g.80gb     0 1 79.25 132 8 7 7 1""",
    "H200": """
        1g.18gb    19 7  16.00  16 1 1 1 0
        1g.18gb+me 20 1  16.00  16 1 1 1 1
        1g.35gb    15 4  32.25  26 1 1 1 0
        2g.35gb    14 3  32.25  32 2 2 2 0
        3g.71gb     9 2  69.50  60 3 3 3 0
        4g.71gb     5 1  69.50  64 4 4 4 0
        7g.141gb    0 1 139.75 132 8 7 7 1""",
    "B200": """
        1g.23gb    19 7  20.50  18  2 1 1 0
        1g.23gb+me 20 1  20.50  18  2 1 1 1
        1g.45gb    15 4  44.25  30  2 1 1 0
        2g.45gb    14 3  44.25  36  4 2 2 0
        3g.90gb     9 2  89.00  70  6 3 3 0
        4g.90gb     5 1  89.00  72  8 4 4 0
        7g.180gb    0 1 178.50 148 16 7 7 1""",
}

# What nvidia-smi mig -lgipp prints, by profile ID: ({starts}, size).
_EIGHT_SLICES = {
    19: ({0, 1, 2, 3, 4, 5, 6}, 1),
    20: ({0, 1, 2, 3, 4, 5, 6}, 1),
    15: ({0, 2, 4, 6}, 2),
    14: ({0, 2, 4}, 2),
    9: ({0, 4}, 4),
    5: ({0}, 4),
    0: ({0}, 8),
}
_FOUR_SLICES = {
    14: ({0, 1, 2, 3}, 1),
    21: ({0, 1, 2, 3}, 1),
    5: ({0, 2}, 2),
    6: ({0, 2}, 2),
    0: ({0}, 4),
}
PLACES = {name: _FOUR_SLICES if name == "A30" else _EIGHT_SLICES for name in PRINTED}

# NVML_GPU_INSTANCE_PROFILE_* of nvml.h, by profile ID.
_NVML_EIGHT = {19: 0, 20: 7, 15: 9, 14: 1, 9: 2, 5: 3, 0: 4}
_NVML_FOUR = {14: 0, 21: 7, 5: 1, 6: 8, 0: 3}
NVML = {name: _NVML_FOUR if name == "A30" else _NVML_EIGHT for name in PRINTED}


def rows(card: str) -> list[tuple[str, int, int, float, int, int, int, int, int]]:
    """Return the print-out of a card as values."""
    table = []
    for line in PRINTED[card].strip().splitlines():
        name, identity, most, memory, *engines = line.split()
        table.append((name, int(identity), int(most), float(memory), *map(int, engines)))
    return table


def spans(card: str) -> dict[str, list[int]]:
    """Return for each profile the bit masks of the memory slices that it may take."""
    places = PLACES[card]
    return {
        name: [((1 << places[identity][1]) - 1) << start for start in places[identity][0]]
        for name, identity, *_ in rows(card)
    }


def feasible_layouts(card: str) -> set[tuple[tuple[str, int], ...]]:
    """Return every layout that the card can hold, found by adding instances one at a time."""
    table = spans(card)
    names = list(table)
    seen: set[tuple[int, tuple[int, ...]]] = set()
    waiting = [(0, (0,) * len(names))]
    while waiting:
        taken, counts = waiting.pop()
        if (taken, counts) in seen:
            continue
        seen.add((taken, counts))
        media = sum(n for name, n in zip(names, counts, strict=True) if name.endswith("+me"))
        for position, mask in (
            (position, mask) for position, name in enumerate(names) for mask in table[name]
        ):
            if mask & taken or (names[position].endswith("+me") and media):
                continue
            more = tuple(n + (i == position) for i, n in enumerate(counts))
            waiting.append((taken | mask, more))
    return {
        tuple((name, n) for name, n in zip(names, counts, strict=True) if n) for _, counts in seen
    }


def is_feasible(card: str, layout: dict[str, int]) -> bool:
    """Tell by trying every combination of places whether the card can hold a layout."""
    table = spans(card)
    if any(name not in table for name in layout):
        return False
    if sum(number for name, number in layout.items() if name.endswith("+me")) > 1:
        return False
    instances = [name for name, number in layout.items() for _ in range(number)]
    if len(instances) > 7:
        return False
    return any(
        sum(choice) == _union(choice) for choice in product(*(table[name] for name in instances))
    )


def _union(masks: tuple[int, ...]) -> int:
    taken = 0
    for mask in masks:
        taken |= mask
    return taken
