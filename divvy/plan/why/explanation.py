"""Why a pod waits: per GPU what is in the way, and who would have to end."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from divvy.plan.claim_matching import (
    is_kind,
    is_wanted_type,
    rounding,
    share_size,
    too_much,
    unknown_capacity,
)
from divvy.plan.claim_requests import Request
from divvy.plan.live_claims import ClaimedGpu, LiveDevice


@dataclass(frozen=True)
class Obstacle:
    """Why one GPU cannot give what is asked for now; ``holders`` are in the way, if any are."""

    gpu: str
    reason: str
    holders: tuple[str, ...] = ()
    never: bool = False

    @property
    def words(self) -> str:
        """Return the obstacle as one line."""
        held = f": {'; '.join(self.holders)}" if self.holders else ""
        return f"{self.gpu}: {self.reason}{held}"


@dataclass(frozen=True)
class Verdict:
    """One request: the nodes that could serve it now, and what is in the way elsewhere."""

    request: Request
    nodes: tuple[str, ...]
    obstacles: tuple[Obstacle, ...]

    @property
    def conclusion(self) -> str:
        """Say in one sentence what the pod waits for."""
        if self.nodes:
            return f"free on {', '.join(self.nodes)}"
        if not self.obstacles:
            return "no GPU of the cluster is served by claims"
        possible = [one for one in self.obstacles if not one.never]
        if not possible:
            return f"no GPU can ever give it: {_common(self.obstacles)}"
        holders = list(dict.fromkeys(name for one in possible for name in one.holders))
        if not holders:
            return f"waiting for a GPU: {_common(possible)}"
        if self.request.count > 1:
            return f"waiting for enough of these to end: {'; '.join(holders)}"
        return f"waiting for one of these to end or make room: {'; '.join(holders)}"


@dataclass(frozen=True)
class Explanation:
    """Why a pod does not run, request by request; ``notes`` are about the pod as a whole.

    Without verdicts it waits for nothing of Divvy's.
    """

    pod: str
    notes: tuple[str, ...]
    verdicts: tuple[Verdict, ...]


def explain(
    pod: str,
    requests: Sequence[Request],
    gpus: Sequence[ClaimedGpu],
    notes: Sequence[str] = (),
    closed: Mapping[str, str] = MappingProxyType({}),
) -> Explanation:
    """Compare what a pod asks for with what is free.

    ``closed`` are the nodes that the pod may not go to, each with the reason.
    """
    verdicts = tuple(_verdict(request, gpus, closed) for request in requests)
    return Explanation(pod, tuple(notes), verdicts)


def _verdict(request: Request, gpus: Sequence[ClaimedGpu], closed: Mapping[str, str]) -> Verdict:
    obstacles = [
        Obstacle(node, closed[node], never=True)
        for node in dict.fromkeys(gpu.node for gpu in gpus)
        if node in closed
    ]
    room: Counter[str] = Counter()
    for gpu in gpus:
        if gpu.node in closed:
            continue
        found = _look(request, gpu)
        if isinstance(found, Obstacle):
            obstacles.append(found)
        else:
            room[gpu.node] += found
    nodes = tuple(sorted(node for node, number in room.items() if number >= request.count))
    for node, number in sorted(room.items()):
        if node not in nodes:
            reason = f"has room for {number} of {request.count}, and all must be on one node"
            obstacles.append(Obstacle(node, reason))
    return Verdict(request, nodes, tuple(obstacles))


def _look(request: Request, gpu: ClaimedGpu) -> int | Obstacle:
    """Return how many of the request a GPU can give now, or why none."""
    if not is_wanted_type(request, gpu):
        return Obstacle(gpu.name, f"is {gpu.product}", never=True)
    devices = [device for device in gpu.devices if is_kind(request, device)]
    if not devices:
        return Obstacle(gpu.name, _not_offered(request, gpu), never=True)
    free = [found for found in (_try(request, gpu, device) for device in devices) if found is True]
    if free:
        # Several MIG devices of a request may lie on one GPU, shares and whole GPUs never do.
        return len(_together(gpu, devices, request)) if request.kind == "mig" else 1
    first = next(found for found in (_try(request, gpu, device) for device in devices))
    assert isinstance(first, Obstacle)
    return first


def _not_offered(request: Request, gpu: ClaimedGpu) -> str:
    if request.kind == "mig":
        return f"offers no {request.profile}"
    if request.kind == "share":
        tenants = sorted({one.tenant for one in gpu.devices if one.tenant})
        if tenants:
            whom = f"tenant {request.tenant}" if request.tenant else "pods without a tenant"
            return f"has shares for {', '.join(tenants)}, none for {whom}"
        return "has no shares" + (f" for tenant {request.tenant}" if request.tenant else "")
    return "is not offered whole"


def _try(request: Request, gpu: ClaimedGpu, device: LiveDevice) -> bool | Obstacle:
    """Return True where a device is free for the request, else what is in the way."""
    never = unknown_capacity(request, device) or too_much(request, device)
    if never:
        return Obstacle(gpu.name, never, never=True)
    if device.taints:
        return Obstacle(gpu.name, f"takes no new pods: {', '.join(device.taints)}")
    if not _counters_free(gpu, device):
        return Obstacle(gpu.name, "is held in another way", _in_the_way(gpu, device))
    if device.kind != "share":
        if device.holders:
            return Obstacle(gpu.name, "is held", tuple(one.words for one in device.holders))
        return True
    names = tuple(holder.words for holder in device.holders)
    if len(device.holders) >= device.most:
        return Obstacle(gpu.name, f"has its {device.most} shares", names)
    memory, cores = share_size(request, device)
    if memory > device.free_mib or cores > device.free_cores:
        rounded = rounding(request, device)
        free = f"{device.free_mib:,} MiB and {device.free_cores} % are free"
        return Obstacle(gpu.name, f"{rounded}; {free}" if rounded else free, names)
    return True


def _counters_free(gpu: ClaimedGpu, device: LiveDevice) -> bool:
    """Return whether the counters have room; a device that is held has taken its own already."""
    if device.holders:
        return True
    return all(gpu.free.get(name, 0) >= number for name, number in device.consumes.items())


def _in_the_way(gpu: ClaimedGpu, device: LiveDevice) -> tuple[str, ...]:
    """Return the holders of devices that take what this device would."""
    return tuple(
        dict.fromkeys(
            f"{holder.words} holds {_called(other)}"
            for other, holder in gpu.holders
            if other.name != device.name and set(other.consumes) & set(device.consumes)
        )
    )


def _called(device: LiveDevice) -> str:
    if device.kind == "gpu":
        return "the GPU whole"
    if device.kind == "mig":
        return f"MIG {device.profile}"
    return "a share" + (f" of tenant {device.tenant}" if device.tenant else "")


def _together(gpu: ClaimedGpu, devices: Sequence[LiveDevice], request: Request) -> list[LiveDevice]:
    """Return devices of one GPU that are free at once, the first that fit first."""
    free = dict(gpu.free)
    chosen: list[LiveDevice] = []
    for device in devices:
        if _try(request, gpu, device) is True and _takes(free, device.consumes):
            chosen.append(device)
    return chosen


def _takes(free: dict[str, int], consumes: Mapping[str, int]) -> bool:
    if any(free.get(name, 0) < number for name, number in consumes.items()):
        return False
    for name, number in consumes.items():
        free[name] -= number
    return True


def _common(obstacles: Sequence[Obstacle]) -> str:
    """Return the reasons, each once, with how many GPUs have it."""
    counts = Counter(one.reason for one in obstacles)
    return "; ".join(
        reason if number == 1 else f"{reason} ({number} GPUs)" for reason, number in counts.items()
    )
