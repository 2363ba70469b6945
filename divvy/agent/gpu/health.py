"""Health of devices, with reasons: XID events, probes and recovery with hysteresis."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace

from divvy.agent.gpu.hardware import Gpu, Snapshot

LOST = "the GPU is lost"
_ASKS = "the driver asks for "


@dataclass(frozen=True)
class HealthRules:
    """Which XIDs are an application's fault, and how long a GPU must be well to come back."""

    ignored_xids: frozenset[int] = frozenset()
    recover_after: float = 60.0


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

    def saved(self) -> tuple[tuple[str, int | None, str], ...]:
        """Return the faults as a checkpoint keeps them."""
        faults = ((gpu, gi, fault.reason) for (gpu, gi), fault in self.faults.items())
        return tuple(sorted(faults, key=str))


def restored(
    saved: Iterable[tuple[str, int | None, str]], last_seen: Mapping[str, str], boot: str
) -> Health:
    """Return the health of the agent before, of this boot; its faults need their calm time again.

    ``last_seen`` maps GPU UUIDs to the boot of which the fault is.
    """
    faults = {(gpu, gi): Fault(why) for gpu, gi, why in saved if last_seen.get(gpu) == boot}
    return Health(faults)


def after_xid(
    health: Health, number: int, gpu: str, gi: int | None, ignored: Collection[int]
) -> Health:
    """Mark what an XID event hit: a GPU, or one GPU instance of it."""
    if number in ignored:
        return health
    return replace(health, faults={**health.faults, (gpu, gi): Fault(f"XID {number}")})


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


def after_scan(health: Health, snapshot: Snapshot, now: float, recover_after: float) -> Health:
    """Take one look at all GPUs into account; faults of GPUs that were replaced are forgotten."""
    known = {gpu.uuid for gpu in snapshot.gpus}
    health = replace(health, faults={k: v for k, v in health.faults.items() if k[0] in known})
    for gpu in snapshot.gpus:
        problem = LOST if gpu.lost else gpu.fault or _recovery_fault(gpu, health)
        health = after_probe(health, gpu.uuid, problem, now, recover_after)
    return health


def unhealthy_devices(snapshot: Snapshot, health: Health) -> dict[str, str]:
    """Return UUID → reason for every unhealthy GPU and MIG device."""
    unhealthy = {}
    for gpu in snapshot.gpus:
        whole = gpu_fault(gpu, health)
        if whole:
            unhealthy[gpu.uuid] = whole
        for instance in gpu.instances:
            reason = health.reason(gpu.uuid, instance.gi)
            if reason and instance.uuid:
                unhealthy[instance.uuid] = reason
    return unhealthy


def gpu_fault(gpu: Gpu, health: Health) -> str | None:
    """Return why a whole GPU is unhealthy, None when it is not."""
    fault = LOST if gpu.lost else gpu.fault or health.reason(gpu.uuid, None)
    if not gpu.recovery:
        return fault
    # Until that is done, new work would be lost or be in the way.
    recovery_fault = f"{_ASKS}{gpu.recovery}"
    return f"{fault}; {recovery_fault}" if fault and not fault.startswith(_ASKS) else recovery_fault


def _recovery_fault(gpu: Gpu, health: Health) -> str | None:
    """Return the fault of a GPU for which the driver asks for an action: what came before it."""
    if not gpu.recovery:
        return None
    before = health.reason(gpu.uuid, None)
    return before if before and not before.startswith(_ASKS) else f"{_ASKS}{gpu.recovery}"
