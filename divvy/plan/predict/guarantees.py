"""Guarantees of a way of sharing, in words that are never stronger than the mechanism."""

from dataclasses import dataclass

from divvy.model import Offer
from divvy.model.enforcement import DRIVER_LIMITS_SINCE, MPS_V3_SINCE
from divvy.model.sharing import Sharing


@dataclass(frozen=True)
class Guarantees:
    """Four promises about a device; each begins with its level, then says what that means."""

    memory: str
    compute: str
    faults: str
    nvidia_smi: str

    def items(self) -> tuple[tuple[str, str], ...]:
        """Return the promises with the names that reports give them."""
        return (
            ("memory", self.memory),
            ("compute", self.compute),
            ("faults", self.faults),
            ("nvidiaSmi", self.nvidia_smi),
        )


# From the strongest promise of memory to the weakest.
MEMORY_LEVELS = ("exclusive", "hard", "limited", "prevented", "per process", "watched", "none")


def level(words: str) -> str:
    """Return the level of a promise: the words before its colon."""
    return words.split(":", 1)[0]


WHOLE = Guarantees(
    memory="exclusive: all memory of the GPU",
    compute="exclusive: nobody else runs on the GPU",
    faults="isolated: nobody else is on the GPU",
    nvidia_smi="whole card: it is the container's own",
)
MIG = Guarantees(
    memory="hard: the MIG device has memory of its own",
    compute="hard: the MIG device has SMs of its own",
    faults="isolated: from other MIG devices, not from a failure of the card",
    nvidia_smi="slice: one MIG device",
)
FILES = Guarantees(
    memory="none: the files are shared by all containers that hold them",
    compute="none: the files are shared by all containers that hold them",
    faults="shared: whoever holds the files can disturb the others",
    nvidia_smi="nothing: not an NVIDIA device",
)

# docs/limiter.md says which memory that is.
_COUNTED_LATER = (
    "a program that goes around that library is reported, not stopped; what the driver itself "
    "takes (first contexts, compressed modules) is counted seconds later"
)


_BY_DRIVER = (
    "the driver itself refuses the container's processes together more than {limit}, contexts "
    "included; managed memory (cudaMallocManaged) counts as the host's"
)
# By NVIDIA's documentation of driver 615; docs/guarantees.md says that no real one has been seen.
_VISIBILITY_BY_DRIVER = "share: its limit as the GPU's memory"
_VISIBILITY_BY_LIMITER = "share: its own memory and processes"
WHERE_THE_DRIVER_CAN = f"driver {DRIVER_LIMITS_SINCE} or newer and control groups of version 2"


def guarantees(offer: Offer) -> Guarantees:
    """Return what a device guarantees its container."""
    sharing = offer.sharing
    if not sharing.is_shared:
        return WHOLE if offer.kind == "gpu" else MIG
    if sharing.by_mps:
        return _mps_guarantees(sharing)
    device = "GPU" if offer.kind == "gpu" else "MIG device"
    whole_card = (
        "whole card: all its memory, also for a replica"
        if offer.kind == "gpu"
        else "slice: the undivided MIG device, also for a replica"
    )
    return Guarantees(
        _memory(sharing, device),
        _compute(sharing, f"1/{sharing.replicas}"),
        f"shared: a fault can end every container on the {device}",
        _visibility(sharing) if sharing.is_prevented else whole_card,
    )


def _mps_guarantees(sharing: Sharing) -> Guarantees:
    """Return what MPS guarantees: both of its versions limit processes."""
    whole_card = "whole card: all its memory, also for a replica"
    return Guarantees(
        _memory_by_mps(sharing),
        f"concurrent: each process uses at most {sharing.threads} % of the SMs"
        f"{_threads_unless(sharing)}; "
        "no SM is its own",
        f"shared: one fault ends all {sharing.replicas} clients of the GPU, and so does the end of "
        "its MPS daemon, as at a restart of the agent's pod or by a command of root in any of its "
        "containers",
        _visibility(sharing) if sharing.is_prevented else whole_card,
    )


_ROOT_COMMANDS = "root in any of the GPU's containers commands its daemon otherwise"
# Also where the daemon has the limit, too: a client that names a GPU that it does not have is
# without any memory limit (measured by NVIDIA with driver 615, Dynamo's guide to limits with MPS).
_MEMORY_UNLESS = f", unless it changes the container's variables, or {_ROOT_COMMANDS}"


def _threads_unless(sharing: Sharing) -> str:
    """Name who can lift the limit of threads: the container's variable, and the daemon's own."""
    drops = f"it drops the container's variables (no help with driver {MPS_V3_SINCE} or newer), or "
    return f", unless {'' if sharing.one_per_container else drops}{_ROOT_COMMANDS}"


def _memory_by_mps(sharing: Sharing) -> str:
    limit = f"{sharing.memory_mib} MiB"
    if sharing.is_prevented:
        return _prevented(limit, sharing, "GPU")
    ends = {
        "enforce": "a container whose processes exceed it together is terminated",
        "warn": "what a container's processes use together above it is noticed, not prevented",
    }
    refused = f"MPS refuses each process more than {limit}{_MEMORY_UNLESS}"
    return f"per process: {refused}; {ends[sharing.action]}"


def share_guarantees(sharing: Sharing, tenants: bool) -> Guarantees:
    """Return what a share of a GPU, claimed by its size, guarantees its container."""
    whom = "every container of the same tenant" if tenants else "every container"
    return Guarantees(
        _prevented("the share's size", sharing, "GPU"),
        _compute(sharing, "the share's part"),
        f"shared: a fault can end {whom} on the GPU",
        _VISIBILITY_BY_LIMITER,
    )


def _memory(sharing: Sharing, device: str) -> str:
    limit = f"{sharing.memory_mib} MiB"
    if sharing.memory_mib is None:
        return f"none: any of {sharing.replicas} containers can take all memory of the {device}"
    if sharing.is_prevented:
        return _prevented(limit, sharing, device)
    if sharing.is_enforced:
        return f"watched: a container above {limit} is terminated, but not before it exceeds it"
    return f"watched: usage above {limit} is noticed, not prevented"


def _visibility(sharing: Sharing) -> str:
    if sharing.by_driver:
        return _VISIBILITY_BY_DRIVER
    if sharing.enforcement == "auto":
        return f"{_VISIBILITY_BY_DRIVER}, and by the limiter also its own processes alone"
    return _VISIBILITY_BY_LIMITER


def _prevented(limit: str, sharing: Sharing, device: str) -> str:
    if sharing.by_driver:
        return f"limited: {_BY_DRIVER.format(limit=limit)}"
    memory = (
        f"prevented: allocations above {limit} fail, by the driver library in the container; "
        f"{_COUNTED_LATER}"
    )
    if sharing.enforcement == "auto":
        stronger = _BY_DRIVER.format(limit=limit)
        memory += f"; on nodes with {WHERE_THE_DRIVER_CAN}, {stronger}"
    if sharing.oversubscribed:
        memory += f"; what the {device} has no room for goes to host memory, which is slow"
    return memory


def _compute(sharing: Sharing, part: str) -> str:
    if sharing.compute == "share":
        return (
            f"weighted: about {part} of the GPU's time while others want theirs, more "
            "while they do not; enforced by the driver library in the container"
        )
    if sharing.compute == "cap":
        return (
            f"capped: about {part} of the GPU's time at most; enforced by the "
            "driver library in the container"
        )
    return f"time-shared: up to {sharing.replicas} containers take turns, without a fixed share"
