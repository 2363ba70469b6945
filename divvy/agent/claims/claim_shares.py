"""The limiter's view of a claim: one account for all of it, a line for each GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from divvy.agent.claims.offers import CLAIM_ID
from divvy.agent.claims.record import BadAllocation, HeldClaim, HeldDevice
from divvy.agent.inject.share import MAX_DEVICES, share_name
from divvy.model.claim_devices import CORES
from divvy.model.sharing import DeviceShare, Sharing


def claim_id(uid: str) -> str:
    """Return the claim's ID in the format that the share files use for replicas."""
    return f"{CLAIM_ID}{uid}"


def is_limited(held: HeldDevice) -> bool:
    """Return whether a device is less than its GPU: all of a GPU needs no limiter."""
    size = held.device.share
    return size is not None and held.sharing.is_less_than(size.memory_mib)


def claim_shares(claim: HeldClaim, uuids: Mapping[str, str]) -> tuple[DeviceShare, ...]:
    """Return what a claim may use of each GPU or MIG device; none if nothing is limited.

    ``uuids`` maps its devices to the UUIDs that CUDA knows. A container may get all of a claim, so
    what is not limited stands beside what is, with all that it has. Two shares of one GPU add up.
    Raises BadAllocation.
    """
    if not any(is_limited(held) for held in claim.devices):
        return ()
    by_uuid: dict[str, list[HeldDevice]] = {}
    for held in claim.devices:
        by_uuid.setdefault(uuids[held.device.name], []).append(held)
    if len(by_uuid) > MAX_DEVICES:
        raise BadAllocation(
            f"{claim.text} has {len(by_uuid)} devices; a claim with a share can have at most "
            f"{MAX_DEVICES}: split them over several claims and containers"
        )
    name = share_name([claim_id(claim.uid)])
    return tuple(
        _device_share(uuid, by_uuid[uuid], f"{name}-{at}")
        for at, uuid in enumerate(sorted(by_uuid))
    )


def _device_share(uuid: str, held: list[HeldDevice], page: str) -> DeviceShare:
    memory = sum(device.memory_mib for device in held)
    cores = min(CORES, sum(device.cores for device in held))
    if not any(is_limited(device) for device in held):
        return DeviceShare(uuid, Sharing(memory_mib=memory))
    sharing = replace(held[0].sharing, memory_mib=memory, weight=max(1, cores))
    return DeviceShare(uuid, sharing, page)
