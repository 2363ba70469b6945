"""The device lists of the node now: desired state, hardware and health put together."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from divvy.agent.gpu.device_id import device_ids, is_client
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.holders import Holder
from divvy.agent.gpu.mig_plan import profile_name
from divvy.model import DesiredGpu, Offer, gpu_resource
from divvy.model.sharing import Sharing


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

    ``kind`` is "gpu", "mig" or "file"; ``files`` are the device files of the last. With
    ``has_clients`` containers hold replicas of it by MPS, be it of an earlier profile. ``by_node``
    says that they are given device nodes themselves: the runtime resolves no CDI names.
    """

    name: str
    devices: tuple[Device, ...]
    kind: str
    sharing: Sharing = Sharing()
    files: tuple[str, ...] = ()
    has_clients: bool = False
    by_node: bool = False

    @cached_property
    def by_id(self) -> Mapping[str, Device]:
        """Return the devices by their IDs."""
        return {device.id: device for device in self.devices}


@dataclass(frozen=True)
class AdvertisedGpu:
    """What is advertised of one GPU: the layout, and which of its MIG devices.

    Devices in ``withheld`` (a MIG device, or the GPU with everything on it) are not listed.
    """

    layout: DesiredGpu
    instances: frozenset[str] = frozenset()
    withheld: frozenset[str] = frozenset()


def inventory(
    advertised: Iterable[AdvertisedGpu], snapshot: Snapshot, unhealthy: Mapping[str, str]
) -> tuple[Resource, ...]:
    """List the resources of a node, sorted by name.

    ``unhealthy`` maps a GPU or MIG UUID to its reason; a GPU's reason counts for everything on it.
    A resource whose devices are all withheld is listed without devices.
    """
    listed: dict[str, list[Device]] = {}
    offers: dict[str, Offer] = {}
    for of_gpu in advertised:
        gpu = snapshot.gpu(of_gpu.layout.uuid)
        if gpu is None:
            continue
        for offer in of_gpu.layout.offers:
            offers.setdefault(offer.resource, offer)
            listed.setdefault(offer.resource, [])
        for offer, uuid, gi in _devices(of_gpu, gpu):
            if uuid in of_gpu.withheld or gpu.uuid in of_gpu.withheld:
                continue
            reason = unhealthy.get(gpu.uuid) or unhealthy.get(uuid)
            for device_id in device_ids(uuid, offer.sharing.replicas, by_mps=offer.sharing.by_mps):
                device = Device(device_id, uuid, gpu.uuid, gi, gpu.numa, reason)
                listed[offer.resource].append(device)
    return tuple(
        Resource(name, tuple(devices), offers[name].kind, offers[name].sharing)
        for name, devices in sorted(listed.items())
    )


def no_gpus() -> Resource:
    """Return the resource of whole GPUs without any."""
    return Resource(gpu_resource(), (), "gpu")


def without_limiter(resources: Iterable[Resource], reason: str) -> Iterator[Resource]:
    """Yield the resources of a node without the limiter: whose memory it limits is unhealthy."""
    return _unhealthy(resources, lambda _: reason, lambda sharing: sharing.by_limiter)


def without_driver_limits(resources: Iterable[Resource], reason: str) -> Iterator[Resource]:
    """Yield the resources of a node whose driver limits no memory: what it should is unhealthy."""
    return _unhealthy(resources, lambda _: reason, lambda sharing: sharing.by_driver)


def limited_gpus(resources: Iterable[Resource]) -> frozenset[str]:
    """Return the GPUs, by UUID, of which shares are listed whose memory is limited."""
    return frozenset(
        device.gpu
        for resource in resources
        if resource.sharing.is_prevented
        for device in resource.devices
    )


def without_open_memory(
    resources: Iterable[Resource], problem: Callable[[str], str]
) -> Iterator[Resource]:
    """Yield the resources of a node: limited shares of memory that no limit holds are unhealthy.

    ``problem`` says of a GPU, by its UUID, why no limit of its memory holds, "" if one does.
    """
    return _unhealthy(resources, problem, lambda sharing: sharing.is_prevented)


def with_clients(
    resources: Iterable[Resource], holders: Iterable[Holder], served: Iterable[Resource] = ()
) -> Iterator[Resource]:
    """Yield the resources of a node with what is known of containers that are clients of MPS.

    Also one that is in no profile any longer, unless still ``served``: a kubelet asks before its
    containers start again only if it is.
    """
    names = {holder.resource for holder in holders if is_client(holder.device_id)}
    for resource in resources:
        yield replace(resource, has_clients=resource.name in names)
        names.discard(resource.name)
    names -= {resource.name for resource in served}
    yield from (Resource(name, (), "gpu", has_clients=True) for name in sorted(names))


def without_mps(resources: Iterable[Resource], problem: Callable[[str], str]) -> Iterator[Resource]:
    """Yield the resources of a node: replicas of GPUs without an MPS daemon are unhealthy.

    ``problem`` says of a GPU, by its UUID, why it has none that answers, "" if it has.
    """
    return _unhealthy(resources, problem, lambda sharing: sharing.by_mps)


def _unhealthy(
    resources: Iterable[Resource],
    problem: Callable[[str], str],
    concerns: Callable[[Sharing], bool],
) -> Iterator[Resource]:
    for resource in resources:
        if concerns(resource.sharing):
            devices = (
                replace(device, unhealthy=device.unhealthy or problem(device.gpu) or None)
                for device in resource.devices
            )
            yield replace(resource, devices=tuple(devices))
        else:
            yield resource


def undescribed(snapshot: Snapshot, described: Collection[str]) -> Iterator[str]:
    """Yield the GPUs and MIG devices that no container can be given now."""
    for gpu in snapshot.gpus:
        for uuid in (gpu.uuid, *(instance.uuid for instance in gpu.instances if instance.uuid)):
            if uuid not in described:
                yield uuid


def offers_by_uuid(of_gpu: AdvertisedGpu, gpu: Gpu) -> dict[str, Offer]:
    """Return how each GPU or MIG device is advertised, withheld or not."""
    return {uuid: offer for offer, uuid, _ in _devices(of_gpu, gpu)}


def _devices(of_gpu: AdvertisedGpu, gpu: Gpu) -> Iterable[tuple[Offer, str, int | None]]:
    layout = of_gpu.layout
    if layout.mig is None:
        if not gpu.mig_mode:
            for offer in layout.offers:
                yield offer, gpu.uuid, None
        return
    by_profile = {offer.mig_profile: offer for offer in layout.offers}
    for instance in gpu.instances:
        name = profile_name(gpu, instance)
        if name in by_profile and instance.uuid in of_gpu.instances:
            yield by_profile[name], instance.uuid, instance.gi
