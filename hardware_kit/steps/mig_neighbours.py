"""MIG devices of one GPU that all work: what each keeps of its compute and bandwidth."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence

from conformance.load.neighbours import Figures, gigabytes, mig_keeps
from hardware_kit.mig import mig_layout
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings
from hardware_kit.steps.mig import gpu_and_layout
from hardware_kit.time_share import Start, kernel_size, on_host, together

_COPY_MIB = 64
_PATIENCE = 60.0


def run(settings: KitSettings, notes: Notes) -> None:
    """Measure every MIG device of a mixed layout alone, and with all others at work."""
    gpu, layout = gpu_and_layout(settings)
    seconds = 1.0 if settings.short else 4.0
    with mig_layout(settings.root, gpu.uuid, layout, settings.state) as uuids:
        starts = [on_host(settings, uuid) for uuid in uuids]
        names = [f"device {number}" for number in range(1, len(uuids) + 1)]
        # A kernel takes its time on the smallest device; all run the same.
        size = kernel_size(settings, starts[-1])
        alone = [together(settings, [start], size, seconds)[0] for start in starts]
        beside = together(settings, starts, size, seconds)
        _judge(notes, "HW-01", names, alone, beside, "Gflop/s")
        alone = [_copy([start], seconds)[0] for start in starts]
        beside = _copy(starts, seconds)
        _judge(notes, "HW-02", names, alone, beside, "GB/s")
        _broken(starts, notes, seconds)


def _judge(
    notes: Notes,
    check: str,
    names: Sequence[str],
    alone: Sequence[float],
    beside: Sequence[float],
    unit: str,
) -> None:
    rows = []
    for name, one, other in zip(names, alone, beside, strict=True):
        notes.measured(f"{check} {name}", *mig_keeps(Figures(one, (other,), ()), unit))
        rows.append((name, one, other, f"{other / one:.0%}" if one else "–"))
    head = ("MIG device", f"{unit} alone", f"{unit} beside all others", "kept")
    notes.table(f"{check}: {unit}", head, rows)


def _copy(starts: Sequence[Start], seconds: float) -> list[float]:
    running = [start("mem-bandwidth", _COPY_MIB, seconds) for start in starts]
    return [gigabytes(_end_of(process)) for process in running]


def _broken(starts: Sequence[Start], notes: Notes, seconds: float) -> None:
    """Run a program that breaks on one device while all others burn."""
    burn = ("gpu-burn", "-m", "64", "-stts", "1", max(2, round(seconds)))
    others = [start(*burn) for start in starts[1:]]
    broken = starts[0]("bad-access")
    last_words = _end_of(broken)
    print(last_words)
    sound = sum("GPU 0: OK" in _end_of(other) and other.returncode == 0 for other in others)
    notes.equal("HW-03 exit code of a program that breaks on device 1", 0, broken.returncode)
    count = f"{sound} of {len(others)}"
    notes.equal("HW-03 burns beside it that end OK", f"{len(others)} of {len(others)}", count)


def _end_of(process: subprocess.Popen[str]) -> str:
    try:
        out, _ = process.communicate(timeout=_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
    return out
