"""Memory of a share that NVML reports and the limiter does not account for.

A context, modules and the driver's own needs are charged by what NVML tells of a process, less what
its slot in the account says; a process of the share's containers without a slot has gone past the
limiter, and is charged in full. The two are read at different instants, so an allocation in
between would count twice: the slot is read before and after, and a figure counts when two
looks in a row have it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class InNamespace:
    """A process as its own PID namespace knows it: the namespace's inode and the number there."""

    namespace: int
    pid: int


@dataclass(frozen=True)
class NvmlUse:
    """What NVML tells of one process on one device of the share, in bytes."""

    process: InNamespace
    device: int
    used: int


Look = Mapping[InNamespace, tuple[int, ...]]


def beyond(
    uses: Iterable[NvmlUse], before: Look, after: Look, devices: int
) -> dict[InNamespace, tuple[int, ...]]:
    """Return what each process has beyond its slot now, in bytes by device.

    ``uses`` are those of the share's own containers: whoever can write a slot can write another's
    number into it. ``before`` and ``after`` are what the slots said around NVML's answer.
    """
    unaccounted = {process: [0] * devices for process in after}
    for use in uses:
        if use.process in unaccounted and use.process in before and use.device < devices:
            allocated = max(before[use.process][use.device], after[use.process][use.device])
            unaccounted[use.process][use.device] += max(0, use.used - allocated)
    return {process: tuple(figures) for process, figures in unaccounted.items()}


def outside(
    uses: Iterable[NvmlUse], slotted: Collection[InNamespace], devices: int
) -> tuple[int, ...]:
    """Return what the share's processes without a slot have, in bytes by device."""
    unaccounted = [0] * devices
    for use in uses:
        if use.process not in slotted and use.device < devices:
            unaccounted[use.device] += use.used
    return tuple(unaccounted)


def settled(now: Look, earlier: Look) -> dict[InNamespace, tuple[int, ...]]:
    """Return what two looks in a row agree on: the lesser of each figure."""
    return {
        process: tuple(map(min, figures, earlier.get(process, (0,) * len(figures))))
        for process, figures in now.items()
    }
