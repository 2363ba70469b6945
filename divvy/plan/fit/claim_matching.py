"""Matches a claim's request with devices, and sizes the share that it takes."""

from divvy.model.claim_names import CORES, MEMORY, SHARES, is_of_type
from divvy.model.mig_names import resource_part
from divvy.plan.fit.claim_requests import Request
from divvy.plan.fit.live_claims import ClaimedGpu, LiveDevice


def is_kind(request: Request, device: LiveDevice) -> bool:
    """Return whether a device is one of those that a request's class selects."""
    if request.kind == "gpu":
        return device.whole
    if request.kind == "mig":
        known = device.profile
        if known is None or request.profile is None:
            return known is not None
        return resource_part(known) == resource_part(request.profile)
    return device.kind == "share" and device.tenant == request.tenant


def is_wanted_type(request: Request, gpu: ClaimedGpu) -> bool:
    """Return whether a GPU is of a type that a request names, and of none that it refuses."""
    if any(is_of_type(gpu.type, name) for name in request.no_types):
        return False
    used = request.use_types
    return not used or any(is_of_type(gpu.type, name) for name in used)


def share_size(request: Request, device: LiveDevice) -> tuple[int, int]:
    """Return the MiB, rounded up to steps, and the per cent that a request takes of a share."""
    default = device.memory_mib if device.default_mib is None else device.default_mib
    requested = _requested_mib(request, device)
    memory = default if requested is None else requested
    whole = device.cores if device.default_cores is None else device.default_cores
    cores = whole if request.cores is None else request.cores
    return -(-memory // device.step_mib) * device.step_mib, max(1, cores)


def rounding(request: Request, device: LiveDevice) -> str:
    """Return a message if a request takes more of a share than it asks for, else ""."""
    requested, (takes, _) = _requested_mib(request, device), share_size(request, device)
    if requested is None or requested == takes:
        return ""
    return f"{requested:,} MiB take {takes:,}, in steps of {device.step_mib:,}"


def unknown_capacity(request: Request, device: LiveDevice) -> str:
    """Return which capacity that a request names a device has not, "" if it has all of them."""
    has = (MEMORY, CORES) if device.kind == "share" else (MEMORY,)
    sizes = {MEMORY: request.memory_mib, CORES: request.cores, SHARES: request.turns}
    # A share has them all, but who asks for its turns asks for one.
    lacks = set() if device.kind == "share" else sizes.keys() - has
    missing = [name for name, size in sizes.items() if size is not None and name in lacks]
    for name in (*request.unknown, *missing):
        short = name.rpartition("/")[2]
        if "/" in name and short in has:
            return f"has no {name}; the claim must call it {short}"
        return f"has no {name}, only {' and '.join(has)}"
    return ""


def too_much(request: Request, device: LiveDevice) -> str:
    """Return what of a request is more than a device has, "" if nothing is."""
    if device.kind != "share":
        memory, cores = request.memory_mib or 0, 0
    else:
        memory, cores = share_size(request, device)
        if cores > device.cores:
            return f"{cores} % of its time is requested"
        if request.turns is not None and request.turns > 1:
            return f"a claim gets one share of it, not {request.turns}"
    if memory <= device.memory_mib:
        return ""
    rounded = rounding(request, device) if device.kind == "share" else ""
    size = f"{rounded}," if rounded else f"{memory:,} MiB are"
    return f"{size} more than its {device.memory_mib:,}"


def _requested_mib(request: Request, device: LiveDevice) -> int | None:
    if request.percent is not None:
        return max(1, device.memory_mib * request.percent // 100)
    return request.memory_mib
