"""The devices of the slices that must not be allocated now, with reasons."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from divvy.agent.claims.instance_plan import foreign_reason
from divvy.agent.claims.record import ClaimRecord
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.gpu.health import Health, gpu_fault
from divvy.model.claim_devices import ClaimDevice
from divvy.model.slice_specs import FOREIGN, RETIRING, UNHEALTHY, Taint

_MAX_VALUE = 63


def device_faults(
    record: ClaimRecord,
    snapshot: Snapshot | None,
    health: Health,
    described: Collection[str],
    away: str = "",
) -> dict[str, str]:
    """Return device → reason for every unhealthy device of the slices.

    ``described`` are the UUIDs that containers can be given; ``away`` says why no GPU of the node
    can be, "" if some can.
    """
    faults: dict[str, str] = {}
    for uuid, offered in record.offered.items():
        gpu = None if snapshot is None else snapshot.gpu(uuid)
        if gpu is None:
            whole = away or "the driver does not show the GPU"
        else:
            whole = away or gpu_fault(gpu, health) or ""
            if not whole and uuid not in described:
                whole = "it is not described in the CDI specification"
        for device in offered.gpu.devices:
            reason = whole
            if not reason and gpu is not None:
                parts = [
                    instance.gi for instance in gpu.instances if _is_at(device, instance.start)
                ]
                reason = next(filter(None, (health.reason(uuid, gi) for gi in parts)), "")
            if reason:
                faults[device.name] = reason
    return faults


def taints(
    record: ClaimRecord,
    snapshot: Snapshot | None,
    faults: Mapping[str, str],
    retiring: Collection[str],
) -> dict[str, Sequence[Taint]]:
    """Return the taints of every device that is not to be allocated now."""
    by_device: dict[str, Sequence[Taint]] = {}
    for uuid, offered in record.offered.items():
        gpu = None if snapshot is None else snapshot.gpu(uuid)
        foreign = gpu is not None and foreign_reason(gpu, record)
        for device in offered.gpu.devices:
            listed = []
            if device.name in faults:
                listed.append(Taint(UNHEALTHY, taint_value(faults[device.name])))
            if uuid in retiring:
                listed.append(Taint(RETIRING))
            if foreign:
                listed.append(Taint(FOREIGN))
            if listed:
                by_device[device.name] = tuple(listed)
    return by_device


def taint_value(reason: str) -> str:
    """Return a reason as the value of a taint, which is written like that of a label."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", reason)[:_MAX_VALUE].strip("-_.")


def _is_at(device: ClaimDevice, start: int) -> bool:
    return device.placement is not None and device.placement == start
