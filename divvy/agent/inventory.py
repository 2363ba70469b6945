"""What the node offers right now: desired state, hardware and health made into device lists."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from divvy.agent.hardware import Gpu, MigInstance, Snapshot
from divvy.model import DesiredGpu, DesiredNode, Offer, model_of_product

REPLICA_SEPARATOR = "::"


@dataclass(frozen=True)
class Device:
    """One entry of a device list.

    ``id`` is what the kubelet knows; ``uuid`` the GPU or MIG device behind it;
    ``gpu`` the physical GPU; ``unhealthy`` the reason, None while healthy.
    """

    id: str
    uuid: str
    gpu: str
    gi: int | None = None
    numa: int | None = None
    unhealthy: str | None = None


@dataclass(frozen=True)
class Resource:
    """One extended resource with its devices, in the order in which they are listed.

    ``kind`` is "gpu", "mig" or "file"; ``files`` are the device files of the last.
    """

    name: str
    devices: tuple[Device, ...]
    replicas: int
    kind: str
    one_per_container: bool
    memory_limit_mib: int | None = None
    memory_enforced: bool = False
    files: tuple[str, ...] = ()

    @cached_property
    def by_id(self) -> Mapping[str, Device]:
        """Return the devices by their IDs."""
        return {device.id: device for device in self.devices}


def physical(device_id: str) -> str:
    """Return the UUID behind a device ID (``uuid`` or ``uuid::n``)."""
    return device_id.split(REPLICA_SEPARATOR, 1)[0]


def profile_name(gpu: Gpu, instance: MigInstance) -> str | None:
    """Return the profile of a MIG instance ("1g.5gb"), None where the model is unknown."""
    model = model_of_product(gpu.product, gpu.memory_mib)
    if model is None or model.mig is None:
        return None
    for profile in model.mig.profiles:
        if profile.profile_id == instance.profile_id:
            return profile.name
    return None


def inventory(
    desired: DesiredNode,
    snapshot: Snapshot,
    unhealthy: Mapping[str, str],
    withheld: Collection[str] = (),
) -> tuple[Resource, ...]:
    """List the resources of a node, sorted by name.

    ``unhealthy`` maps a GPU or MIG UUID to its reason; a GPU's reason counts for
    everything on it. UUIDs in ``withheld`` (a device, or a whole GPU) are not
    listed: they are being re-cut.
    """
    listed: dict[str, list[Device]] = {}
    offers: dict[str, Offer] = {}
    for wish in desired.gpus:
        gpu = snapshot.gpu(wish.uuid)
        if gpu is None or gpu.uuid in withheld:
            continue
        for offer, uuid, gi in _offered(wish, gpu):
            offers.setdefault(offer.resource, offer)
            entries = listed.setdefault(offer.resource, [])
            if uuid in withheld:
                continue
            reason = unhealthy.get(gpu.uuid) or unhealthy.get(uuid)
            for device_id in _ids(uuid, offer.replicas):
                entries.append(Device(device_id, uuid, gpu.uuid, gi, gpu.numa, reason))
    return tuple(
        Resource(
            name=name,
            devices=tuple(devices),
            replicas=offers[name].replicas,
            kind=offers[name].kind,
            one_per_container=offers[name].fail_requests_greater_than_one,
            memory_limit_mib=offers[name].memory_limit_mib,
            memory_enforced=offers[name].memory_enforced,
        )
        for name, devices in sorted(listed.items())
    )


def offered_resource(wish: DesiredGpu, gpu: Gpu, uuid: str) -> str | None:
    """Return the resource under which ``wish`` offers this GPU or MIG device, or None."""
    return next((offer.resource for offer, known, _ in _offered(wish, gpu) if known == uuid), None)


def _offered(wish: DesiredGpu, gpu: Gpu) -> Iterable[tuple[Offer, str, int | None]]:
    if wish.mig is None:
        if not gpu.mig_mode:
            for offer in wish.offers:
                yield offer, gpu.uuid, None
        return
    by_profile = {offer.mig_profile: offer for offer in wish.offers}
    remaining = dict(wish.mig)
    for instance in gpu.instances:
        name = profile_name(gpu, instance)
        if name is None or instance.uuid is None or not remaining.get(name):
            continue
        remaining[name] -= 1
        yield by_profile[name], instance.uuid, instance.gi


def _ids(uuid: str, replicas: int) -> Iterable[str]:
    if replicas == 1:
        return (uuid,)
    return (f"{uuid}{REPLICA_SEPARATOR}{number}" for number in range(replicas))
