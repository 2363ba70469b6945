"""Answer Allocate: check the request, name the devices the container gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from divvy.agent.inject.container_edits import ContainerEdits
from divvy.agent.inject.share import MAX_DEVICES, share_name
from divvy.agent.plugin.inventory import Resource
from divvy.model.sharing import NO_PAGE, DeviceShare


class Refused(Exception):
    """A request that cannot be granted; the text reaches the pod's status."""


@dataclass(frozen=True)
class ContainerAllocation:
    """What one container gets: CDI names, and edits that no CDI specification makes."""

    cdi_names: tuple[str, ...]
    edits: ContainerEdits = ContainerEdits()


def allocated_uuids(resource: Resource, device_ids: Sequence[str]) -> tuple[str, ...]:
    """Return what is behind these devices of a resource, or raise Refused with the reason."""
    if resource.sharing.one_per_container and len(device_ids) > 1:
        raise Refused(
            f"{resource.name}: {len(device_ids)} requested, at most 1 per container: "
            "requesting more than one replica does not provide more of the GPU"
        )
    for device_id in device_ids:
        device = resource.by_id.get(device_id)
        if device is None:
            raise Refused(f"{resource.name}: device {device_id} is not advertised on this node now")
        if device.unhealthy is not None:
            raise Refused(f"{resource.name}: device {device_id} is unhealthy: {device.unhealthy}")
    uuids = tuple(dict.fromkeys(resource.by_id[device_id].uuid for device_id in device_ids))
    if resource.sharing.by_mps and len(uuids) > 1:
        raise Refused(
            f"{resource.name}: replicas of {len(uuids)} GPUs requested; a container can be the "
            "client of one GPU's MPS daemon: request no more replicas than one GPU has free"
        )
    if resource.sharing.is_prevented and len(uuids) > MAX_DEVICES:
        raise Refused(
            f"{resource.name}: replicas of {len(uuids)} devices requested, at most {MAX_DEVICES} "
            "per container where `memoryLimit` has `action: prevent`"
        )
    return uuids


def device_shares(resource: Resource, device_ids: Sequence[str]) -> tuple[DeviceShare, ...]:
    """Return what these replicas of a limited resource are of each device, sorted by UUID."""
    replicas = Counter(resource.by_id[device_id].uuid for device_id in device_ids)
    name = share_name(device_ids)
    return tuple(
        DeviceShare(
            uuid,
            resource.sharing.times(count),
            # Of two GPUs' pages each has a name of its own.
            NO_PAGE if resource.sharing.compute is None else f"{name}-{at}",
        )
        for at, (uuid, count) in enumerate(sorted(replicas.items()))
    )
