"""What the limiter costs a call: through it, in turns with the same call to the driver alone."""

from __future__ import annotations

from functools import partial

from benchmarks.call_costs import paired
from hardware_kit.container import Container
from hardware_kit.injected import inject
from hardware_kit.notes import Notes
from hardware_kit.settings import KitSettings
from hardware_kit.tenant import tenant

# Enough to know how long a call takes. A driver takes a hundred times as long to allocate as to
# launch, and on some machines ten times as long as on others.
_TRIAL = {"allocate": 500, "launch": 2_000}


def run(settings: KitSettings, notes: Notes) -> None:
    """Measure allocations and launches of an empty kernel, beside one idle share."""
    injected = inject(settings)
    bare = Container(settings, settings.scratch / "bare", injected.spec, settings.gpu)
    bare.make()
    limited = tenant(settings, injected, "limited", 2048, 50)
    tenant(settings, injected, "idle", 2048, 40)
    rounds, seconds = (2, 0.05) if settings.short else (7, 1.0)
    rows = []
    for what, few in _TRIAL.items():
        calls = calls_within(seconds, _per_call(limited, what, few))
        costs = paired(
            rounds,
            partial(_per_call, bare, what, calls),
            partial(_per_call, limited, what, calls),
        )
        rows += [
            (what, name, *(f"{figure:.0f}" for figure in figures)) for name, figures in costs.rows
        ]
        added = dict(costs.rows)["added"][1]
        notes.tell(f"what is added to each {what}, median in nanoseconds", f"{added:.0f}")
    head = ("call", "driver", "least", "median", "greatest")
    notes.table(f"Nanoseconds a call, {rounds} rounds in turns", head, rows)


def calls_within(seconds: float, nanoseconds: float) -> int:
    """Return how many calls of so many nanoseconds make a round of so many seconds."""
    return max(1, int(seconds * 1e9 / nanoseconds))


def _per_call(container: Container, what: str, calls: int) -> float:
    done = container.run("driver-calls", "libcuda.so.1", what, calls, seconds=100)
    if done.returncode:
        raise RuntimeError(f"driver-calls ended with {done.returncode}: {done.stdout.strip()}")
    return float(done.stdout)
