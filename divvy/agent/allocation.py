"""Answer Allocate: check the request, name the devices the container gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from divvy.agent.edits import Edits
from divvy.agent.inventory import Resource

CDI_KIND = "divvy.gpu/gpu"


class Refused(Exception):
    """A request that cannot be granted; the text reaches the pod's status."""


@dataclass(frozen=True)
class Grant:
    """What one container gets: CDI names, and edits that no CDI specification makes."""

    cdi_names: tuple[str, ...]
    edits: Edits = Edits()


def granted_uuids(resource: Resource, device_ids: Sequence[str]) -> tuple[str, ...]:
    """Return what is behind these devices of a resource, or raise Refused with the reason."""
    if resource.one_per_container and len(device_ids) > 1:
        raise Refused(
            f"{resource.name}: {len(device_ids)} requested, at most 1 per container: "
            "more replicas of a shared device give no more of it"
        )
    for device_id in device_ids:
        device = resource.by_id.get(device_id)
        if device is None:
            raise Refused(f"{resource.name}: device {device_id} is not offered on this node now")
        if device.unhealthy is not None:
            raise Refused(f"{resource.name}: device {device_id} is unhealthy: {device.unhealthy}")
    return tuple(dict.fromkeys(resource.by_id[device_id].uuid for device_id in device_ids))
