"""What neighbours cost a device: its figures alone, and while every other device works too.

Only hardware gives these figures a meaning. Each device of a kind is measured while all
devices of the node, of every kind that is cut or shared, do the same at the same time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.catalogue import MIG, MIG_SLICED, SHARED
from conformance.pods import Outcome, Workplace
from conformance.promise import DevicePromise

_SECONDS = 6
BURN = ("gpu-burn", "-m", "64", "-stts", "1", str(_SECONDS))
COPY = ("mem-bandwidth", "64", str(_SECONDS))
_PATIENCE = 180
# A device with hardware of its own may lose this much to neighbours: power and clocks are shared.
MIG_KEEPS = 0.8
# Of a fair share: 1 divided by the shares of one device.
SHARE_KEEPS = 0.25


@dataclass(frozen=True)
class Figures:
    """One kind of device: its figure alone, and that of each device among neighbours."""

    alone: float
    beside: tuple[float, ...]
    logs: tuple[str, ...]

    def kept(self, fair: float = 1.0) -> float:
        """Return the worst figure beside neighbours as a part of what is fair; 0 without one."""
        return min(self.beside, default=0.0) / (self.alone * fair) if self.alone else 0.0


def mig_keeps(figures: Figures, unit: str) -> tuple[bool, str, str]:
    """Judge a MIG device among neighbours: whether it keeps enough, what is expected, what is."""
    listed = ", ".join(f"{figure:g}" for figure in figures.beside)
    return (
        figures.kept() >= MIG_KEEPS,
        f"at least {MIG_KEEPS:.0%} of the {figures.alone:g} {unit} that it has alone",
        f"{listed} {unit} with all neighbours: {figures.kept():.0%}",
    )


def shares_keep(figures: Figures, shares: int) -> tuple[bool, str, str]:
    """Judge the shares of one device that all burn, as ``mig_keeps`` does."""
    listed = ", ".join(f"{figure:g}" for figure in figures.beside)
    kept = figures.kept(1 / shares)
    return (
        kept >= SHARE_KEEPS,
        f"no share below {SHARE_KEEPS:.0%} of a fair share of {figures.alone:g} Gflop/s",
        f"{listed} Gflop/s: the worst has {kept:.0%} of it",
    )


def gigaflops(log: str) -> float:
    """Return the last figure that gpu-burn gave, 0 where it gave none."""
    return _last(r"\((\d+(?:\.\d+)?) Gflop/s\)", log)


def gigabytes(log: str) -> float:
    """Return the figure that mem-bandwidth gave, 0 where it gave none."""
    return _last(r"(\d+\.\d+) GB/s", log)


def _last(pattern: str, log: str) -> float:
    found = re.findall(pattern, log)
    return float(found[-1]) if found else 0.0


def crowded(promises: Sequence[DevicePromise]) -> list[DevicePromise]:
    """Return the kinds of a node whose devices have neighbours on the same GPU."""
    return [one for one in promises if one.mode in (MIG, MIG_SLICED, *SHARED)]


def measure(
    pods: Workplace, promises: Sequence[DevicePromise], command: Sequence[str]
) -> Mapping[str, Figures]:
    """Run a command alone on one device of each kind, then on all devices at once."""
    read = gigaflops if command[0] == "gpu-burn" else gigabytes
    alone = {}
    for one in promises:
        alone[one.resource] = pods.run(one.node.name, command, one.resource, _PATIENCE)
    together = at_once(pods, promises, command)
    return {
        one.resource: Figures(
            read(alone[one.resource].log),
            tuple(read(outcome.log) for outcome in together[one.resource]),
            (alone[one.resource].log, *(outcome.log for outcome in together[one.resource])),
        )
        for one in promises
    }


def at_once(
    pods: Workplace,
    promises: Sequence[DevicePromise],
    command: Sequence[str],
    spare: DevicePromise | None = None,
    other: Sequence[str] = (),
) -> dict[str, list[Outcome]]:
    """Run a command on every device at once; on one device of ``spare``, ``other`` instead.

    What came of ``other`` is under the key "".
    """
    names: dict[str, list[str]] = {"": []}
    try:
        for one in promises:
            count = one.count - (spare is not None and one.resource == spare.resource)
            names[one.resource] = [
                pods.start(one.node.name, command, one.resource) for _ in range(count)
            ]
        if spare is not None:
            busy = [name for own in names.values() for name in own]
            pods.until(lambda: all(pods.phase(name) != "Pending" for name in busy), _PATIENCE)
            names[""] = [pods.start(spare.node.name, other, spare.resource)]
        return {key: [pods.wait(name, _PATIENCE) for name in own] for key, own in names.items()}
    finally:
        pods.remove(*(name for own in names.values() for name in own))
