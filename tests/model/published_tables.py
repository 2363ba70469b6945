"""The MIG tables of the vendor's guide and of real cards, typed by hand, and a brute-force oracle.

Nothing here comes from divvy: a wrong number in its data has to disagree with these.
"""

from collections.abc import Iterable
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
    "L4": ("ada", (8, 9), 23034, 58, 0x27B810DE, 0x16CA10DE, 72, 2040, 6251, 0),
    "A10": ("ampere", (8, 6), 23028, 72, 0x223610DE, 0x148210DE, 150, 1695, 6251, 0),
    "A10G": ("ampere", (8, 6), 23028, 80, 0x223710DE, 0x152F10DE, 300, 1710, 6251, 0),
    "A2": ("ampere", (8, 6), 15356, 10, 0x25B610DE, 0x157E10DE, 60, 1770, 6251, 0),
    "A40": ("ampere", (8, 6), 46068, 84, 0x223510DE, 0x145A10DE, 300, 1740, 7251, 4),
    "RTX-A6000": ("ampere", (8, 6), 49140, 84, 0x223010DE, 0x145910DE, 300, 2100, 8001, 4),
    "RTX-6000-Ada": ("ada", (8, 9), 49140, 142, 0x26B110DE, 0x16A110DE, 300, 3105, 10001, 0),
    "L40": ("ada", (8, 9), 46068, 142, 0x26B510DE, 0x169D10DE, 300, 2490, 9001, 0),
    "V100-SXM2-16GB": ("volta", (7, 0), 16384, 80, 0x1DB110DE, 0x121210DE, 300, 1530, 877, 6),
    "V100-SXM2-32GB": ("volta", (7, 0), 32768, 80, 0x1DB510DE, 0x124910DE, 300, 1530, 877, 6),
    "RTX-4090": ("ada", (8, 9), 24564, 128, 0x268410DE, 0xF29710B0, 450, 3105, 10501, 0),
    "RTX-5090": ("blackwell", (12, 0), 32607, 170, 0x2B8510DE, 0x205710DE, 575, 3090, 14001, 0),
    "H100-PCIE-80GB": ("hopper", (9, 0), 81559, 114, 0x233110DE, 0x162610DE, 350, 1755, 1593, 12),
    "H100-NVL": ("hopper", (9, 0), 95830, 132, 0x232110DE, 0x183910DE, 400, 1785, 2619, 12),
    "GH200-96GB": ("hopper", (9, 0), 97871, 132, 0x234210DE, 0x180910DE, 900, 1980, 2619, 18),
    "GH200-144GB": ("hopper", (9, 0), 146831, 132, 0x234810DE, 0x18D210DE, 900, 1980, 3201, 18),
    "GB200": ("blackwell", (10, 0), 189471, 152, 0x294110DE, 0x204610DE, 1200, 2062, 3996, 18),
    "B300": ("blackwell", (10, 3), 275040, 148, 0x318210DE, 0x20E610DE, 1100, 2032, 3996, 18),
    "GB300": ("blackwell", (10, 3), 284208, 152, 0x31C210DE, 0x21F110DE, 1400, 2032, 3996, 18),
    "GB10": ("blackwell", (12, 1), 124610, 48, 0x2E1210DE, 0x10DE, 140, 3003, 8533, 0),
    "H20": ("hopper", (9, 0), 97871, 78, 0x232910DE, 0x198B10DE, 500, 1980, 2619, 18),
    "H20-3e": ("hopper", (9, 0), 143771, 78, 0x232C10DE, 0x206310DE, 500, 1980, 3201, 18),
    "RTX-PRO-6000": (
        *("blackwell", (12, 0), 97887, 188, 0x2BB510DE, 0x204E10DE, 600, 2430, 12481),
        0,
    ),
}

DEVICE_IDS = {
    "T4": {0x1EB8},
    "A30": {0x20B7},
    "A100-SXM4-40GB": {0x20B0, 0x20B1, 0x20BD, 0x20F1, 0x20F6},
    "A100-SXM4-80GB": {0x20B2, 0x20B5, 0x20F3, 0x20F5},
    "L40S": {0x26B9},
    "H100-SXM5-80GB": {0x2330, 0x2324},
    "H200": {0x2335, 0x233B},
    "B200": {0x2901},
    "L4": {0x27B8},
    "A10": {0x2236},
    "A10G": {0x2237},
    "A2": {0x25B6},
    "A40": {0x2235},
    "RTX-A6000": {0x2230},
    "RTX-6000-Ada": {0x26B1},
    "L40": {0x26B5},
    "V100-SXM2-16GB": {0x1DB1, 0x1DB4, 0x1DF5},
    "V100-SXM2-32GB": {0x1DB5, 0x1DB6, 0x1DB8, 0x1DF6},
    "RTX-4090": {0x2684},
    "RTX-5090": {0x2B85},
    "H100-PCIE-80GB": {0x2331, 0x2322},
    "H100-NVL": {0x2321, 0x233A},
    "GH200-96GB": {0x2342},
    "GH200-144GB": {0x2348},
    "GB200": {0x2941},
    "B300": {0x3182},
    "GB300": {0x31C2, 0x31C3},
    "GB10": {0x2E12},
    "H20": {0x2329},
    "H20-3e": {0x232C},
    "RTX-PRO-6000": {0x2BB5, 0x2BB1, 0x2BB4},
}

# MIG cards of which no table is printed anywhere, or only its small profiles.
UNPUBLISHED = {"B300", "GB300", "H20", "H20-3e", "GB200", "GH200-144GB"}

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
    # As driver 580.159.04 has it; an older print-out has 0.25 less from 1g.35gb on.
    "H200": """
        1g.18gb    19 7  16.00  16 1 1 1 0
        1g.18gb+me 20 1  16.00  16 1 1 1 1
        1g.35gb    15 4  32.50  26 1 1 1 0
        2g.35gb    14 3  32.50  32 2 2 2 0
        3g.71gb     9 2  69.75  60 3 3 3 0
        4g.71gb     5 1  69.75  64 4 4 4 0
        7g.141gb    0 1 140.00 132 8 7 7 1""",
    "B200": """
        1g.23gb    19 7  20.50  18  2 1 1 0
        1g.23gb+me 20 1  20.50  18  2 1 1 1
        1g.45gb    15 4  44.25  30  2 1 1 0
        2g.45gb    14 3  44.25  36  4 2 2 0
        3g.90gb     9 2  89.00  70  6 3 3 0
        4g.90gb     5 1  89.00  72  8 4 4 0
        7g.180gb    0 1 178.50 148 16 7 7 1""",
    "H100-PCIE-80GB": """
        1g.10gb    19 7  9.75  14 1 1 1 0
        1g.10gb+me 20 1  9.75  14 1 1 1 1
        1g.20gb    15 4 19.62  14 1 1 1 0
        2g.20gb    14 3 19.62  30 2 2 2 0
        3g.40gb     9 2 39.50  46 3 3 3 0
        4g.40gb     5 1 39.50  62 4 4 4 0
        7g.80gb     0 1 79.25 114 8 7 7 1""",
    "H100-NVL": """
        1g.12gb    19 7 10.75  16 1 1 1 0
        1g.12gb+me 20 1 10.75  16 1 1 1 1
        1g.24gb    15 4 21.62  26 1 1 1 0
        2g.24gb    14 3 21.62  32 2 2 2 0
        3g.47gb     9 2 46.38  60 3 3 3 0
        4g.47gb     5 1 46.38  64 4 4 4 0
        7g.94gb     0 1 93.12 132 8 7 7 1""",
    "GH200-96GB": """
        1g.12gb    19 7 11.00  16 1 1 1 0
        1g.12gb+me 20 1 11.00  16 1 1 1 1
        1g.24gb    15 4 23.00  26 1 1 1 0
        2g.24gb    14 3 23.00  32 2 2 2 0
        3g.48gb     9 2 46.50  60 3 3 3 0
        4g.48gb     5 1 46.50  64 4 4 4 0
        7g.96gb     0 1 93.00 132 8 7 7 1""",
    "GH200-144GB": """
        1g.18gb    19 7 17.50 16 1 1 1 0
        1g.18gb+me 20 1 17.50 16 1 1 1 1
        1g.36gb    15 4 35.25 26 1 1 1 0
        2g.36gb    14 3 35.25 32 2 2 2 0""",
    "GB200": """
        1g.23gb    19 7 22.00 18 2 1 1 0
        1g.23gb+me 20 1 22.00 18 2 1 1 1
        1g.47gb    15 4 45.50 32 2 1 1 0
        2g.47gb    14 3 45.50 38 4 2 2 0""",
    "RTX-PRO-6000": """
        1g.24gb        14 4 23.62  46 1 1 1 0
        1g.24gb+me     21 1 23.62  46 1 1 1 1
        1g.24gb+gfx    47 4 23.62  46 1 1 1 0
        1g.24gb+me.all 65 1 23.62  46 1 4 4 1
        1g.24gb-me     67 4 23.62  46 1 0 0 0
        2g.48gb         5 2 47.38  94 2 2 2 0
        2g.48gb+gfx    35 2 47.38  94 2 2 2 0
        2g.48gb+me.all 64 1 47.38  94 2 4 4 1
        2g.48gb-me     66 2 47.38  94 2 0 0 0
        4g.96gb         0 1 95.12 188 4 4 4 1
        4g.96gb+gfx    32 1 95.12 188 4 4 4 1""",
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
_TWELVE_UNITS = {
    **dict.fromkeys((14, 21, 47, 65, 67), ({0, 3, 6, 9}, 3)),
    **dict.fromkeys((5, 35, 64, 66), ({0, 6}, 6)),
    **dict.fromkeys((0, 32), ({0}, 12)),
}
PLACES = {name: _EIGHT_SLICES for name in PRINTED}
PLACES |= {"A30": _FOUR_SLICES, "RTX-PRO-6000": _TWELVE_UNITS}
# (memory slices, compute slices)
SLICES = {name: (8, 7) for name in PRINTED} | {"A30": (4, 4), "RTX-PRO-6000": (12, 4)}

# NVML_GPU_INSTANCE_PROFILE_* of nvml.h, by profile ID.
_NVML_EIGHT = {19: 0, 20: 7, 15: 9, 14: 1, 9: 2, 5: 3, 0: 4}
_NVML_FOUR = {14: 0, 21: 7, 5: 1, 6: 8, 0: 3}
_NVML_GRAPHICS = {14: 0, 21: 7, 47: 10, 65: 15, 67: 13}
_NVML_GRAPHICS |= {5: 1, 35: 11, 64: 16, 66: 14, 0: 3, 32: 12}
NVML = {name: _NVML_EIGHT for name in PRINTED}
NVML |= {"A30": _NVML_FOUR, "RTX-PRO-6000": _NVML_GRAPHICS}
# Decoders of the cards on which one instance may take those of others.
DECODERS = {"RTX-PRO-6000": 4}


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


def decoders(card: str, layout: Iterable[tuple[str, int]]) -> int:
    """Return how many decoders the instances of a layout have together."""
    counts = {row[0]: row[6] for row in rows(card)}
    return sum(counts[name] * number for name, number in layout)


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
            if decoders(card, zip(names, more, strict=True)) > DECODERS.get(card, 99):
                continue
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
    if decoders(card, layout.items()) > DECODERS.get(card, 99):
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
