"""Programs that take turns on one GPU without a limiter, as replicas do: each of them advances."""

from __future__ import annotations

from conformance.load.neighbours import Figures, replicas_keep
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings
from hardware_kit.time_share import kernel_size, on_host, together

_REPLICAS = 4


def run(settings: KitSettings, notes: Notes) -> None:
    """Measure one program alone, then four at once."""
    seconds = 2.0 if settings.short else 6.0
    start = on_host(settings, settings.gpu)
    size = kernel_size(settings, start)
    (alone,) = together(settings, [start], size, seconds)
    speeds = together(settings, [start] * _REPLICAS, size, seconds)
    fair = alone / _REPLICAS or 1.0
    rows = [("alone", alone, "–")]
    rows += [(str(n), speed, f"{speed / fair:.0%}") for n, speed in enumerate(speeds, 1)]
    notes.table(
        f"{_REPLICAS} programs at once, {seconds:.0f} s",
        ("program", "Gflop/s", "of a fair part"),
        rows,
    )
    judged = replicas_keep(Figures(alone, tuple(speeds), ()), _REPLICAS)
    notes.measured("each replica's part (HW-04)", *judged)
    notes.tell("all together, of what one has alone", f"{sum(speeds) / (alone or 1.0):.0%}")
