"""The shortage of a node for a pod, from bad to nearly enough, in words."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from fractions import Fraction

from divvy.model.phrases import some
from divvy.plan.fit.claim_allocation import NodeDevices
from divvy.plan.fit.claim_matching import is_kind, is_wanted_type, too_much, unknown_capacity
from divvy.plan.fit.claim_requests import Request
from divvy.plan.fit.live_claims import ClaimedGpu, LiveDevice

_MIB = 1 << 20


class ShortageKind(IntEnum):
    """How far a node is from taking a pod."""

    NOT_OFFERED = 0
    TOO_MUCH = 1
    NOT_ALLOWED = 2
    NOT_FREE = 3


@dataclass(frozen=True)
class Shortage:
    """What a node lacks; ``missing`` is how many of the resource, to find the nearest node."""

    lack: ShortageKind
    words: str
    missing: Fraction = Fraction(0)
    resource: str = ""


def shortage_of(
    resource: str, needed: Fraction, capacity: Fraction, used: Fraction, holders: Sequence[str]
) -> Shortage | None:
    """Return what a node lacks of one resource, None if nothing."""
    if needed <= capacity - used:
        return None
    if not capacity:
        return Shortage(ShortageKind.NOT_OFFERED, f"offers no {resource}", needed, resource)
    size, amount = amount_words(resource, capacity), amount_words(resource, needed)
    if needed > capacity:
        words = f"offers {size} {resource}, it needs {amount}"
        return Shortage(ShortageKind.TOO_MUCH, words, needed - capacity, resource)
    free = amount_words(resource, max(capacity - used, Fraction(0)))
    held = f"; held by {some(list(dict.fromkeys(holders)))}" if holders else ""
    words = f"offers {size} {resource}, {free} {'is' if free == '1' else 'are'} free, it needs"
    return Shortage(
        ShortageKind.NOT_FREE, f"{words} {amount}{held}", needed - capacity + used, resource
    )


def claim_shortage(
    requests: Sequence[Request], devices: NodeDevices, holders: Sequence[str]
) -> Shortage:
    """Return what a node lacks for claims that it could not serve."""
    also = _taints("; some devices", requests, devices)
    for request in requests:
        devices_of_it = [device for device in _devices(request, devices) if not device.taints]
        if not devices_of_it:
            lacks = f"offers no {_kind(request)}{_taints(': its devices', [request], devices)}"
            return Shortage(ShortageKind.NOT_OFFERED, lacks, Fraction(request.count))
        never = _never(request, devices_of_it)
        if never:
            return Shortage(ShortageKind.TOO_MUCH, never + also)
    requests_text = " and ".join(request.words for request in requests)
    if NodeDevices([_free(gpu) for gpu in devices.gpus], devices.spread).claim(requests) is None:
        words = f"has no GPUs that give {requests_text}, even with nothing held{also}"
        return Shortage(ShortageKind.TOO_MUCH, words)
    held = f"; held by {some(list(dict.fromkeys(holders)))}" if holders else ""
    return Shortage(ShortageKind.NOT_FREE, f"has no room left for {requests_text}{held}{also}")


def _devices(request: Request, devices: NodeDevices) -> Iterator[LiveDevice]:
    """Yield the devices that a request means, also those with taints."""
    for gpu in devices.gpus:
        if is_wanted_type(request, gpu):
            yield from (device for device in gpu.devices if is_kind(request, device))


def _taints(which: str, requests: Iterable[Request], devices: NodeDevices) -> str:
    """Name the taints of devices that requests mean, "" if there are none."""
    taints = {
        taint
        for request in requests
        for device in _devices(request, devices)
        for taint in device.taints
    }
    return f"{which} have taints ({some(sorted(taints))})" if taints else ""


def _never(request: Request, devices: Sequence[LiveDevice]) -> str:
    """Return why none of some devices can ever give what is asked for, "" if one can."""
    unknown = [unknown_capacity(request, device) for device in devices]
    if all(unknown):
        return unknown[0]
    too_large = [too_much(request, device) for device in devices]
    if all(too_large):
        return f"has no GPU that gives {request.words}: {too_large[0]}"
    return ""


def amount_words(resource: str, number: Fraction) -> str:
    """Return a number of devices, of cores, or of bytes as MiB."""
    if resource == "memory" or resource.startswith(("ephemeral-", "hugepages-")):
        return f"{int(number / _MIB):,} MiB"
    return f"{int(number):,}" if number.denominator == 1 else f"{float(number):g}"


def claim_holders(gpus: Iterable[ClaimedGpu]) -> list[str]:
    """Return who holds anything of some GPUs."""
    return [holder.words for gpu in gpus for _, holder in gpu.holders]


def _kind(request: Request) -> str:
    types = ""
    if request.use_types or request.no_types:
        types = replace(request, count=1).words.partition(" on ")[2] or " of these types"
        types = f" of type {', '.join(request.use_types)}" if request.use_types else types
    tenant = f" for tenant {request.tenant}" if request.tenant else ""
    if request.kind == "mig":
        profile = "" if request.profile is None else f" {request.profile}"
        return f"MIG device{profile} to claims{types}"
    return f"{'whole GPU' if request.kind == 'gpu' else 'share'} to claims{tenant}{types}"


def _free(gpu: ClaimedGpu) -> ClaimedGpu:
    """Return the GPU as it would be if it were idle."""
    if not gpu.holders:
        return gpu
    free: dict[str, int] = dict(gpu.free)
    for device in gpu.devices:
        for name, number in (device.consumes if device.holders else {}).items():
            free[name] = free.get(name, 0) + number
    return replace(
        gpu, devices=tuple(replace(device, holders=()) for device in gpu.devices), free=free
    )


def requests_by_claim(
    by_claim: Mapping[str, tuple[tuple[str, int], ...]],
    resources: Iterable[str],
    kinds: Mapping[str, Request],
) -> list[Request]:
    """Return the requests that the scheduler makes of resources that a node serves by claims.

    In the order of their names, in which it looks for devices.
    """
    named = sorted(
        (name, resource, count)
        for resource in resources
        for name, count in by_claim.get(resource, ())
    )
    return [replace(kinds[resource], count=count) for _, resource, count in named]
