"""A share of a GPU as its container is told of it: memory, and its part of the compute time."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from divvy.agent.decide.holders import Holder
from divvy.agent.decide.inventory import Resource

MAX_DEVICES = 16
"""Devices that the limiter knows of one share (plugin_image/limiter/share/share.h)."""


class Compute(Enum):
    """How the GPU's time is divided: not at all, by weight under contention, by weight always."""

    FREE = "free"
    SHARE = "share"
    CAP = "cap"


@dataclass(frozen=True)
class DeviceShare:
    """What a container holds of one GPU or MIG device; ``weight`` in per cent of its time.

    ``page`` names the file by which the share tells others of its use, "-" where compute is free.
    ``oversubscribed``: what the GPU has no room for goes to the host's memory.
    """

    uuid: str
    memory_mib: int
    compute: Compute = Compute.FREE
    weight: int = 100
    page: str = "-"
    oversubscribed: bool = False


def share_name(device_ids: Iterable[str]) -> str:
    """Name what a container holds by its replicas: the same ones have the same account again."""
    return hashlib.sha256("\0".join(sorted(device_ids)).encode()).hexdigest()[:16]


def share_holders(holders: Iterable[Holder]) -> dict[frozenset[str], Holder]:
    """Return who has each share, by all the replicas, or the claim, that the share is of.

    The files of a share stay a while after its container: one of its replicas may be another
    container's by then, and what the files tell is not that one's.
    """
    containers: dict[tuple[str, ...], list[Holder]] = {}
    for holder in holders:
        # Of a claim there is no resource: each is a share of its own.
        of = holder.resource or holder.device_id
        key = (holder.pod, holder.pod_uid, holder.container, of)
        containers.setdefault(key, []).append(holder)
    return {frozenset(one.device_id for one in held): held[0] for held in containers.values()}


def device_shares(resource: Resource, device_ids: Sequence[str]) -> tuple[DeviceShare, ...]:
    """Return what these replicas of a limited resource are of each device, sorted by UUID."""
    held = Counter(resource.by_id[device_id].uuid for device_id in device_ids)
    compute = Compute.FREE if resource.compute is None else Compute(resource.compute)
    name = share_name(device_ids)
    return tuple(
        DeviceShare(
            uuid,
            (resource.memory_limit_mib or 0) * count,
            compute,
            max(1, 100 * count // resource.replicas),
            # Of two GPUs' pages each has a name of its own.
            "-" if compute is Compute.FREE else f"{name}-{at}",
            resource.memory_oversubscribed,
        )
        for at, (uuid, count) in enumerate(sorted(held.items()))
    )


def limits_text(devices: Iterable[DeviceShare]) -> str:
    """Render the file of limits that the limiter reads (plugin_image/limiter/share/share.c)."""
    lines = (
        f"device {each.uuid} memory {each.memory_mib << 20} "
        f"compute {each.compute.value} weight {each.weight} page {each.page} "
        f"oversubscribed {'yes' if each.oversubscribed else 'no'}\n"
        for each in devices
    )
    return "divvy-share 1\n" + "".join(lines)
