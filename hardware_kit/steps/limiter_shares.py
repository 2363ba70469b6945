"""Two shares of 30 and 70 that both want the whole GPU: which part of its time each gets."""

from __future__ import annotations

from hardware_kit.injected import inject
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings
from hardware_kit.tenant import tenant
from hardware_kit.time_share import kernel_size, together

_WEIGHTS = (30, 70)
_POINTS = 3.0
_KEEPS = 0.85


def run(settings: KitSettings, notes: Notes) -> None:
    """Measure a share alone, then both together."""
    injected = inject(settings)
    seconds = 2.0 if settings.short else 10.0
    both = [tenant(settings, injected, f"share-{each}", 2048, each) for each in _WEIGHTS]
    size = kernel_size(settings, both[0].start)
    notes.tell("size of its kernels, a millisecond each", size)
    (alone,) = together(settings, [both[0].start], size, seconds / 2)
    speeds = together(settings, [each.start for each in both], size, seconds)
    whole = sum(speeds) or 1.0
    parts = [100 * each / whole for each in speeds]
    head = ("share", "Gflop/s", "part of both")
    rows = [
        (f"{weight} %", figure, f"{part:.1f} %")
        for weight, figure, part in zip(_WEIGHTS, speeds, parts, strict=True)
    ]
    title = f"Two shares that both burn, {seconds:.0f} s"
    notes.table(title, head, [("30 %, alone", alone, "–"), *rows])
    notes.measured(
        "their parts (HW-05)",
        abs(parts[0] - _WEIGHTS[0]) <= _POINTS,
        f"30 and 70 %, within {_POINTS:.0f} points",
        f"{parts[0]:.1f} and {parts[1]:.1f} %",
    )
    notes.measured(
        "both together, of what one has alone",
        whole >= _KEEPS * alone,
        f"at least {_KEEPS:.0%}",
        f"{whole / alone:.0%}" if alone else "nothing",
    )
