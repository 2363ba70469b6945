"""Finds claims that still hold what another one was allocated, and are not given back yet.

The scheduler knows a claim as free when its pod is deleted by force, before this node has given it
back: so what was allocated is compared with what is held, by the scheduler's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from divvy.agent.claims.record import HeldClaim, HeldDevice
from divvy.model.claim_devices import CORES
from divvy.model.offered_gpu import OfferedGpu


def in_the_way(
    claim: HeldClaim, held: Iterable[HeldClaim], offered: Mapping[str, OfferedGpu]
) -> tuple[HeldClaim, ...]:
    """Return the claims that must be given back before this one can be prepared."""
    others = [other for other in held if other.uid != claim.uid]
    conflicts: dict[str, HeldClaim] = {}
    for uuid in claim.gpus:
        on_gpu = [other for other in others if uuid in other.gpus]
        counters = offered[uuid].gpu.counters if uuid in offered else None
        claim_devices = _of_gpu(claim, uuid)
        all_devices = [
            *claim_devices,
            *(device for other in on_gpu for device in _of_gpu(other, uuid)),
        ]
        excluded = [
            other
            for other in on_gpu
            if _excluded(claim_devices, _of_gpu(other, uuid), all_devices, counters)
        ]
        if not excluded and counters is not None and _exceed(all_devices, counters):
            # Each fits beside this one alone, and not all together.
            names = {device.device.name for device in claim_devices}
            excluded = [
                other
                for other in on_gpu
                if not names.issuperset(device.device.name for device in _of_gpu(other, uuid))
            ]
        conflicts |= {other.uid: other for other in excluded}
    return tuple(sorted(conflicts.values(), key=lambda other: (other.namespace, other.name)))


def _excluded(
    claim_devices: Sequence[HeldDevice],
    other: Sequence[HeldDevice],
    all_devices: Sequence[HeldDevice],
    counters: Mapping[str, int] | None,
) -> bool:
    """Return whether two claims cannot both have what they hold of one GPU."""
    for device in claim_devices:
        for another in other:
            if device.device.name == another.device.name:
                if device.device.share is None or _overfull(device, all_devices):
                    return True
            elif _exceed((device, another), counters):
                return True
    return False


def _overfull(share: HeldDevice, all_devices: Sequence[HeldDevice]) -> bool:
    """Return whether a device has more shares than it has room for."""
    size = share.device.share
    assert size is not None
    same = [held for held in all_devices if held.device.name == share.device.name]
    return (
        sum(held.memory_mib for held in same) > size.memory_mib
        or sum(held.cores for held in same) > CORES
        or len(same) > size.most
    )


def _exceed(devices: Iterable[HeldDevice], counters: Mapping[str, int] | None) -> bool:
    """Return whether devices of one GPU take more than its counters have; each counts once."""
    if counters is None:
        return True  # without counters a GPU has one device
    consumed: dict[str, int] = {}
    for device in {held.device.name: held.device for held in devices}.values():
        for name, number in (device.consumes or {}).items():
            consumed[name] = consumed.get(name, 0) + number
    return any(number > counters.get(name, 0) for name, number in consumed.items())


def _of_gpu(claim: HeldClaim, uuid: str) -> list[HeldDevice]:
    return [held for held in claim.devices if held.uuid == uuid]
