"""``ClaimRecord``: the claims that hold this node's GPUs, as the driver's checkpoint keeps them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from typing import Any

from divvy.agent.claims.quantities import amount, mib_of
from divvy.agent.gpu.plain_values import from_plain
from divvy.model.api_names import CLAIMS_DRIVER
from divvy.model.claim_devices import CORES, ClaimableGpu, ClaimDevice, ShareSize
from divvy.model.claim_names import CORES as CORES_CAPACITY
from divvy.model.claim_names import MEMORY, unqualified
from divvy.model.claim_status import (
    allocated_parameters,
    allocation_results,
    consumer_pods,
    is_allocated,
)
from divvy.model.gpu_models import MigProfile
from divvy.model.nvidia_claims import parameters_problem
from divvy.model.offered_gpu import OfferedGpu
from divvy.model.sharing import Sharing


class BadAllocation(Exception):
    """An allocation that this node cannot serve; the text reaches the pod's events."""


class ClaimState(StrEnum):
    """How far a claim is, in the words of NVIDIA's driver.

    An agent that dies leaves a claim in one of them. One whose preparation has started may have
    anything of what it is to get, and so may one that is being released: the next Prepare goes on,
    the next Unprepare removes what is there. A completed one has everything.
    """

    PREPARE_STARTED = "PrepareStarted"
    PREPARE_COMPLETED = "PrepareCompleted"


@dataclass(frozen=True)
class HeldDevice:
    """One device of a claim: as it was offered, and how much of it was allocated.

    ``sharing`` has the memory and the part of the time that the claim may use. ``has_instance``
    says that the MIG instance at the device's placement is the claim's, or is about to be, and
    ``boot`` in which boot of the node it was created: none lasts longer.
    """

    request: str
    pool: str
    device: ClaimDevice
    sharing: Sharing
    share_id: str = ""
    has_instance: bool = False
    boot: str = ""

    @property
    def memory_mib(self) -> int:
        """Return the memory that the claim may use: a claim always has a limit."""
        return self.sharing.memory_mib or 0

    @property
    def cores(self) -> int:
        """Return the part of the GPU's time that the claim may use, in per cent."""
        return self.sharing.weight

    @property
    def uuid(self) -> str:
        """Return the GPU's UUID."""
        return self.device.uuid


@dataclass(frozen=True)
class HeldClaim:
    """A claim of which this node has, or may have, something.

    ``pods`` are those it was reserved for when it was prepared: (name, UID). ``limiter`` is the
    version of the limiter that the files of its limits were written for.
    """

    uid: str
    namespace: str
    name: str
    devices: tuple[HeldDevice, ...]
    pods: tuple[tuple[str, str], ...] = ()
    state: ClaimState = ClaimState.PREPARE_STARTED
    limiter: str = ""

    @property
    def is_prepared(self) -> bool:
        """Return whether its containers can start, and may have."""
        return self.state is ClaimState.PREPARE_COMPLETED

    @property
    def text(self) -> str:
        """Name the claim for a person."""
        return f"claim {self.namespace}/{self.name}"

    @property
    def gpus(self) -> tuple[str, ...]:
        """Return the UUIDs of its GPUs, sorted."""
        return tuple(sorted({held.uuid for held in self.devices}))


@dataclass(frozen=True)
class ClaimRecord:
    """What survives the agent: the GPUs as they were published, and the claims by UID."""

    offered: Mapping[str, OfferedGpu] = field(default_factory=dict)
    claims: Mapping[str, HeldClaim] = field(default_factory=dict)

    def of_gpu(self, uuid: str) -> tuple[HeldClaim, ...]:
        """Return the claims that hold something of a GPU, sorted by name."""
        claims = (claim for claim in self.claims.values() if uuid in claim.gpus)
        return tuple(sorted(claims, key=lambda claim: (claim.namespace, claim.name, claim.uid)))

    def tasks(self) -> Mapping[str, int]:
        """Return how many claims hold something of each offered GPU."""
        return {uuid: len(self.of_gpu(uuid)) for uuid in self.offered}

    def allocated_to_shares(self) -> Mapping[str, Fraction]:
        """Return how much of each GPU shares take: their part of its memory and of its time.

        Exact, so that GPUs of which as much is taken are equal, whatever the shares.
        """
        allocated = dict.fromkeys(self.offered, Fraction())
        for claim in self.claims.values():
            for held in claim.devices:
                if held.device.share is not None:
                    memory = Fraction(held.memory_mib, held.device.share.memory_mib)
                    part = memory + Fraction(held.cores, CORES)
                    allocated[held.uuid] = allocated.get(held.uuid, Fraction()) + part
        return allocated


def repair_from_copies(record: ClaimRecord, copies: ClaimRecord) -> ClaimRecord:
    """Return what is held, where copies of prepared claims may tell of later ones than a record.

    A claim is in the record before it has a copy, and as long as it has one. So a record that lacks
    a claim of the copies is older than they are, such as a backup: they are right, and claims
    without a copy have been given back since.
    """
    if copies.claims.keys() <= record.claims.keys():
        return record
    return ClaimRecord({**record.offered, **copies.offered}, copies.claims)


def held_claim(
    claim: Mapping[str, Any], uid: str, pool: str, offered: Mapping[str, OfferedGpu]
) -> HeldClaim:
    """Read what a ResourceClaim was allocated of this node; raises BadAllocation."""
    meta: Mapping[str, Any] = claim["metadata"]
    name, namespace = meta["name"], meta["namespace"]
    if meta["uid"] != uid:
        raise BadAllocation(
            f"claim {namespace}/{name} has been replaced: its UID is now {meta['uid']}, not {uid}"
        )
    if not is_allocated(claim):
        raise BadAllocation(f"claim {namespace}/{name} is not allocated")
    results = [result for result in allocation_results(claim) if result["driver"] == CLAIMS_DRIVER]
    if not results:
        raise BadAllocation(f"claim {namespace}/{name} is allocated no device of {CLAIMS_DRIVER}")
    if foreign := [result["pool"] for result in results if result["pool"] != pool]:
        raise BadAllocation(f"pool {foreign[0]} does not belong to this node; its pool is {pool}")
    requests = [result["request"] for result in results]
    if refused := parameters_problem(allocated_parameters(claim), requests):
        raise BadAllocation(f"claim {namespace}/{name} has {refused}")
    devices = {device.name: (gpu, device) for gpu in offered.values() for device in gpu.gpu.devices}
    return HeldClaim(
        uid,
        namespace,
        name,
        tuple(_held_device(result, devices) for result in results),
        consumer_pods(claim),
    )


def require_offered(claim: HeldClaim, offered: Mapping[str, OfferedGpu]) -> None:
    """Check that all devices of a claim are still offered; raises BadAllocation."""
    devices = {device.name for gpu in offered.values() for device in gpu.gpu.devices}
    for held in claim.devices:
        if held.device.name not in devices:
            raise _not_offered(held.device.name)


def _not_offered(device: str) -> BadAllocation:
    return BadAllocation(f"device {device} is no longer offered on this node: delete the pod")


def _held_device(
    result: Mapping[str, Any], devices: Mapping[str, tuple[OfferedGpu, ClaimDevice]]
) -> HeldDevice:
    if result.get("adminAccess"):
        raise BadAllocation(f"{result['device']}: admin access is not offered")
    if result["device"] not in devices:
        raise _not_offered(result["device"])
    gpu, device = devices[result["device"]]
    memory, cores = device.memory_mib, CORES
    if device.share is not None:
        consumed = unqualified(result.get("consumedCapacity") or {})
        try:
            memory = mib_of(consumed[MEMORY]) if MEMORY in consumed else device.share.memory_mib
            cores = amount(consumed[CORES_CAPACITY]) if CORES_CAPACITY in consumed else CORES
        except ValueError as error:
            raise BadAllocation(f"device {device.name} was allocated in part: {error}") from error
    return HeldDevice(
        # Of a request with alternatives, pods name the request alone.
        result["request"].split("/")[0],
        result["pool"],
        device,
        replace(gpu.sharing, memory_mib=memory, weight=cores),
        result.get("shareID") or "",
    )


def allocated_gpus(claims: Iterable[Mapping[str, Any]], pool: str) -> frozenset[str]:
    """Return the devices of a node's pool that any of these ResourceClaims is allocated.

    Admin access, which is never prepared, takes none.
    """
    return frozenset(
        result["device"]
        for claim in claims
        for result in allocation_results(claim)
        if (result["driver"], result["pool"]) == (CLAIMS_DRIVER, pool)
        and not result.get("adminAccess")
    )


def encoded(record: ClaimRecord) -> dict[str, Any]:
    """Return a record as plain JSON values."""
    return {
        "offered": [asdict(gpu) for _, gpu in sorted(record.offered.items())],
        "claims": [asdict(claim) for _, claim in sorted(record.claims.items())],
    }


def decoded(raw: Mapping[str, Any]) -> ClaimRecord:
    """Read what ``encoded`` wrote; raises KeyError, TypeError or ValueError."""
    offered = [_offered_gpu(gpu) for gpu in raw["offered"]]
    claims = [_claim(claim) for claim in raw["claims"]]
    return ClaimRecord({gpu.uuid: gpu for gpu in offered}, {claim.uid: claim for claim in claims})


def _offered_gpu(raw: Mapping[str, Any]) -> OfferedGpu:
    gpu = raw["gpu"]
    devices = tuple(_device(device) for device in gpu["devices"])
    claimable = from_plain(ClaimableGpu, gpu, devices=devices)
    return from_plain(OfferedGpu, raw, gpu=claimable, sharing=from_plain(Sharing, raw["sharing"]))


def _claim(raw: Mapping[str, Any]) -> HeldClaim:
    devices = tuple(
        from_plain(
            HeldDevice,
            held,
            device=_device(held["device"]),
            sharing=from_plain(Sharing, held["sharing"]),
        )
        for held in raw["devices"]
    )
    pods = tuple((str(name), str(uid)) for name, uid in raw["pods"])
    state = ClaimState(raw["state"])
    return from_plain(HeldClaim, raw, devices=devices, pods=pods, state=state)


def _device(raw: Mapping[str, Any]) -> ClaimDevice:
    share, profile = raw["share"], raw["profile"]
    if profile is not None:
        tuples = {name: tuple(profile[name]) for name in ("starts", "attributes")}
        profile = from_plain(MigProfile, profile, **tuples)
    share = None if share is None else from_plain(ShareSize, share)
    return from_plain(ClaimDevice, raw, share=share, profile=profile)
