"""Answer Allocate: check the request, name the devices the container gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divvy.agent.inventory import Resource

CDI_KIND = "divvy.gpu/gpu"


class Refused(Exception):
    """A request that cannot be granted; the text reaches the pod's status."""


@dataclass(frozen=True)
class Grant:
    """What one container gets: the granted device IDs, the UUIDs behind them, CDI names, files."""

    device_ids: tuple[str, ...]
    uuids: tuple[str, ...]
    cdi_names: tuple[str, ...]
    files: tuple[str, ...] = ()


def grant(resource: Resource, device_ids: Sequence[str]) -> Grant:
    """Grant these devices of a resource, or raise Refused with device and reason."""
    if resource.one_per_container and len(device_ids) > 1:
        raise Refused(
            f"{resource.name}: {len(device_ids)} requested, at most 1 per container: "
            "more replicas of a shared device give no more of it"
        )
    known = {device.id: device for device in resource.devices}
    for device_id in device_ids:
        device = known.get(device_id)
        if device is None:
            raise Refused(f"{resource.name}: device {device_id} is not offered on this node now")
        if device.unhealthy is not None:
            raise Refused(f"{resource.name}: device {device_id} is unhealthy: {device.unhealthy}")
    if resource.kind == "file":
        return Grant(tuple(device_ids), (), (), resource.files)
    uuids = tuple(dict.fromkeys(known[device_id].uuid for device_id in device_ids))
    names = tuple(f"{CDI_KIND}={uuid}" for uuid in uuids)
    return Grant(tuple(device_ids), uuids, names)
