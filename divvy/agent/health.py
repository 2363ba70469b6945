"""Which devices are unhealthy and why: XID events, probes and recovery with hysteresis."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from divvy.agent.hardware import Gpu, Snapshot


@dataclass(frozen=True)
class Fault:
    """Why a GPU (or one GPU instance of it) is unhealthy.

    ``calm_since`` is the time of the first good probe after the last bad sign,
    None while the GPU still misbehaves.
    """

    reason: str
    calm_since: float | None = None


@dataclass(frozen=True)
class Health:
    """Faults by (GPU UUID, GPU instance or None for the whole GPU)."""

    faults: Mapping[tuple[str, int | None], Fault] = field(default_factory=dict)

    def reason(self, gpu: str, gi: int | None) -> str | None:
        """Return why this GPU, or this instance of it, is unhealthy; None when healthy."""
        whole = self.faults.get((gpu, None))
        part = self.faults.get((gpu, gi))
        return whole.reason if whole else part.reason if part else None


def after_xid(
    health: Health,
    number: int,
    gpu: str | None,
    gi: int | None,
    known: Collection[str],
    ignored: Collection[int],
) -> Health:
    """Mark what an XID event hit; an event without a GPU counts for every known one."""
    if number in ignored:
        return health
    faults = dict(health.faults)
    for uuid in [gpu] if gpu in known else sorted(known):
        assert uuid is not None
        faults[uuid, gi if gpu in known else None] = Fault(f"XID {number}")
    return replace(health, faults=faults)


def after_probe(
    health: Health, gpu: str, problem: str | None, now: float, recover_after: float
) -> Health:
    """Take one probe of a GPU into account.

    A failed probe marks the GPU. A good one starts or continues the calm time of
    its faults; faults whose calm time has reached ``recover_after`` seconds end.
    """
    faults = dict(health.faults)
    if problem is not None:
        faults[gpu, None] = Fault(problem)
        return replace(health, faults=faults)
    for key in [key for key in faults if key[0] == gpu]:
        fault = faults[key]
        if fault.calm_since is None:
            faults[key] = replace(fault, calm_since=now)
        elif now - fault.calm_since >= recover_after:
            del faults[key]
    return health if faults == health.faults else replace(health, faults=faults)


def unhealthy_devices(snapshot: Snapshot, health: Health) -> dict[str, str]:
    """Return UUID → reason for every unhealthy GPU and MIG device."""
    found = {}
    for gpu in snapshot.gpus:
        whole = gpu_fault(gpu, health)
        if whole:
            found[gpu.uuid] = whole
        for instance in gpu.instances:
            reason = health.reason(gpu.uuid, instance.gi)
            if reason and instance.uuid:
                found[instance.uuid] = reason
    return found


def gpu_fault(gpu: Gpu, health: Health) -> str | None:
    """Return why a whole GPU is unhealthy, None when it is not."""
    return "the GPU is lost" if gpu.lost else health.reason(gpu.uuid, None)
