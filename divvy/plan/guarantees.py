"""What a way of sharing guarantees, in words that are never stronger than the mechanism."""

from dataclasses import dataclass
from typing import Literal

from divvy.model import Offer


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
    "what only the driver knows (first contexts, compressed modules) counts seconds later; a "
    "program that bypasses it is noticed, not stopped"
)


def guarantees(offer: Offer) -> Guarantees:
    """Return what a device guarantees its container."""
    if offer.replicas == 1:
        return WHOLE if offer.kind == "gpu" else MIG
    device = "GPU" if offer.kind == "gpu" else "MIG device"
    if offer.memory_limit_mib is None:
        memory = f"none: any of {offer.replicas} containers can take all memory of the {device}"
    elif offer.memory_prevented:
        memory = (
            f"prevented: the driver library in the container refuses more than "
            f"{offer.memory_limit_mib} MiB; {_COUNTED_LATER}"
        )
        if offer.memory_oversubscribed:
            memory += f"; what the {device} has no room for goes to the host's memory, and is slow"
    elif offer.memory_enforced:
        limit = f"{offer.memory_limit_mib} MiB"
        memory = f"watched: a container above {limit} is terminated, but not before it exceeds it"
    else:
        memory = f"watched: usage above {offer.memory_limit_mib} MiB is noticed, not prevented"
    compute = f"time-shared: up to {offer.replicas} containers take turns, without a fixed share"
    if offer.compute == "share":
        compute = (
            f"weighted: about 1/{offer.replicas} of the GPU's time while others want theirs, more "
            "while they do not; enforced by the driver library in the container"
        )
    elif offer.compute == "cap":
        compute = (
            f"capped: about 1/{offer.replicas} of the GPU's time at most; enforced by the "
            "driver library in the container"
        )
    if offer.kind == "gpu":
        return Guarantees(
            memory,
            compute,
            "shared: a fault can end every container on the GPU",
            "share: its own memory and processes"
            if offer.memory_prevented
            else "whole card: all its memory, whatever the replica",
        )
    return Guarantees(
        memory,
        compute,
        "shared: a fault can end every container on the MIG device",
        "share: its own memory and processes"
        if offer.memory_prevented
        else "slice: the undivided MIG device, whatever the replica",
    )


def share_guarantees(
    compute: Literal["share", "cap"], oversubscribed: bool, tenants: bool
) -> Guarantees:
    """Return what a share of a GPU, claimed by its size, guarantees its container."""
    memory = (
        f"prevented: the driver library in the container refuses more than the share's size; "
        f"{_COUNTED_LATER}"
    )
    if oversubscribed:
        memory += "; what the GPU has no room for goes to the host's memory, and is slow"
    if compute == "cap":
        words = (
            "capped: about the share's part of the GPU's time at most; enforced by the driver "
            "library in the container"
        )
    else:
        words = (
            "weighted: about the share's part of the GPU's time while others want theirs, more "
            "while they do not; enforced by the driver library in the container"
        )
    whom = "every container of the same tenant" if tenants else "every container"
    return Guarantees(
        memory,
        words,
        f"shared: a fault can end {whom} on the GPU",
        "share: its own memory and processes",
    )
