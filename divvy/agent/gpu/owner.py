"""``hand_over``: who owns each GPU of a node, and which fence a change of owner waits for.

Two allocators give GPUs out: the kubelet those of the device plugin, and the scheduler those in
this node's ResourceSlices. Neither knows of the other, so a GPU is known to one of them at a time.
It changes hands in two steps, each on the disk before the next: the first owner's fence closes and
nobody owns the GPU, then the other one is told of it. An agent that dies in between finds a GPU
that nobody owns, and hands it over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from divvy.agent.claims.record import ClaimRecord
from divvy.agent.gpu.device_id import physical
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.gpu.holders import Held, bounded_names
from divvy.model import DesiredGpu
from divvy.model.offered_gpu import OfferedGpu

WITHDRAWING = "waiting for the kubelet to withdraw the old devices"
NO_CDI = "the container runtime of this node does not resolve CDI names"
_ALLOCATED = "waiting for claims that were just allocated"


class Owner(StrEnum):
    """Who may allocate a GPU, or has what is held of it."""

    PLUGIN = "plugin"
    CLAIMS = "claims"
    NOBODY = "nobody"


@dataclass(frozen=True)
class KubeletView:
    """What the kubelet says of devices at one instant.

    ``fence`` tells whether it has taken every list of ours; ``allocatable`` are the device IDs it
    would allocate, ``held`` the holders by UUID.
    """

    held: Held
    allocatable: frozenset[str]
    fence: bool


@dataclass(frozen=True)
class ClaimsView:
    """What this node knows of claims at one instant.

    ``record`` is what is offered and held. ``unallocated`` are the GPUs whose devices have had a
    taint for so long that every scheduler has seen it, and of which no claim in the API has been
    allocated anything since; ``unknown`` says why that cannot be read of the others. Without
    ``cdi`` no claim can be served.
    """

    record: ClaimRecord = field(default_factory=ClaimRecord)
    unallocated: frozenset[str] = frozenset()
    unknown: str = ""
    cdi: bool = True

    def has(self, uuid: str) -> bool:
        """Return whether a GPU is offered to claims, or held by one."""
        return uuid in self.record.offered or bool(self.record.of_gpu(uuid))


class Fence(Protocol):
    """An allocator from which a GPU is to be taken."""

    def waits_for(self, uuid: str) -> str:
        """Return why it may still have, or allocate, something of a GPU; "" once it cannot."""


@dataclass(frozen=True)
class KubeletFence:
    """Closed once the kubelet allocates no device of any GPU of the node, and shows no holder.

    If a node advertises a resource, the scheduler takes it for that of the device plugin alone:
    so no GPU of a node is offered to claims before the last one is free of it. ``reasons`` say by
    UUID why a GPU is not; ``names`` are what the GPUs are called; the others do not wait for those
    that are ``excluded_from_move``.
    """

    reasons: Mapping[str, str]
    names: Mapping[str, str]
    excluded_from_move: frozenset[str] = frozenset()

    def waits_for(self, uuid: str) -> str:
        """Return why a GPU, or another one of the node, is not free of the kubelet yet."""
        if reason := self.reasons.get(uuid):
            return reason
        others = (
            f"{self.names[other]}: {why}"
            for other, why in self.reasons.items()
            if why and other not in self.excluded_from_move
        )
        return next(others, "")

    def has(self, uuid: str) -> bool:
        """Return whether the kubelet may have or allocate something of this GPU."""
        return bool(self.reasons.get(uuid))


@dataclass(frozen=True)
class SchedulerFence:
    """Closed once the scheduler no longer allocates a GPU, and no claim is prepared on it."""

    claims: ClaimsView

    def waits_for(self, uuid: str) -> str:
        """Return which claims hold a GPU, or that one may just have been allocated it."""
        if held := [claim.text for claim in self.claims.record.of_gpu(uuid)]:
            return f"held by {bounded_names(held)}"
        if uuid in self.claims.unallocated:
            return ""
        return self.claims.unknown or _ALLOCATED


@dataclass(frozen=True)
class Ownership:
    """Who owns a GPU, who should, and what a change of that waits for ("" if for nothing).

    ``offered`` is what claims are offered of it from now on, None if nothing. A ``retiring`` GPU is
    tainted: nothing more of it is to be allocated by the scheduler.
    """

    owner: Owner = Owner.NOBODY
    target: Owner = Owner.NOBODY
    waits_for: str = ""
    offered: OfferedGpu | None = None
    retiring: bool = False

    @property
    def asks_kubelet(self) -> bool:
        """Return whether the GPU waits for the kubelet on its way to claims."""
        return self.target is Owner.CLAIMS and self.owner is not Owner.CLAIMS

    @property
    def line(self) -> str:
        """Describe in one line who owns the GPU and what it waits for."""
        return f"{self.owner} ({self.waits_for})" if self.waits_for else str(self.owner)


def kubelet_fence(
    gpus: Iterable[Gpu],
    kubelet: KubeletView | str,
    unready: Mapping[str, str],
    excluded_from_move: frozenset[str] = frozenset(),
) -> KubeletFence:
    """Return the kubelet's fence; ``unready`` says of GPUs what their layout still waits for.

    ``excluded_from_move`` are those that may be held: none is left that the kubelet would allocate.
    """
    gpus = tuple(gpus)
    reasons = {gpu.uuid: _kubelet_reason(gpu, kubelet) or unready.get(gpu.uuid, "") for gpu in gpus}
    names = {gpu.uuid: f"GPU {gpu.index}" for gpu in gpus}
    withdrawn = {uuid for uuid, reason in reasons.items() if reason != WITHDRAWING}
    return KubeletFence(reasons, names, excluded_from_move & withdrawn)


def hand_over(
    uuid: str,
    wanted: OfferedGpu | None,
    kubelet: KubeletFence,
    claims: ClaimsView,
    *,
    listed: bool = False,
) -> Ownership:
    """Return who owns a GPU from now on.

    ``wanted`` is what claims should be offered of it, None if it should be the device plugin's, for
    which ``listed`` tells whether it lists any device of it now.
    """
    scheduler: Fence = SchedulerFence(claims)
    target = Owner.PLUGIN if wanted is None else Owner.CLAIMS
    offered = claims.record.offered.get(uuid)
    if offered is not None:
        if wanted is not None and wanted.gpu == offered.gpu:
            return Ownership(Owner.CLAIMS, target, offered=wanted)
        # The scheduler counts what is allocated against what is published: a device that went, or
        # had another shape, while a claim has it would be allocated a second time.
        if reason := scheduler.waits_for(uuid):
            return Ownership(Owner.CLAIMS, target, reason, offered, retiring=True)
        owner = Owner.NOBODY if wanted is None else Owner.CLAIMS
        return Ownership(owner, target, offered=wanted)
    if wanted is None:
        if claims.has(uuid):
            return Ownership(Owner.CLAIMS, target, scheduler.waits_for(uuid))
        owner = Owner.PLUGIN if listed or kubelet.has(uuid) else Owner.NOBODY
        return Ownership(owner, target, kubelet.reasons.get(uuid, "") if not listed else "")
    fence: Fence = kubelet
    if reason := fence.waits_for(uuid) or ("" if claims.cdi else NO_CDI):
        return Ownership(Owner.PLUGIN if kubelet.has(uuid) else Owner.NOBODY, target, reason)
    return Ownership(Owner.CLAIMS, target, offered=wanted)


def released(claims: ClaimsView) -> dict[str, Ownership]:
    """Return who owns the GPUs that claims are offered where other software serves the node."""
    nothing = KubeletFence({}, {})
    return {uuid: hand_over(uuid, None, nothing, claims) for uuid in claims.record.offered}


def next_offered(owners: Mapping[str, Ownership], record: ClaimRecord) -> dict[str, OfferedGpu]:
    """Return what is offered next; a GPU stays if a claim was prepared since it was decided."""
    offered = {uuid: owner.offered for uuid, owner in owners.items() if owner.offered is not None}
    for uuid, gpu in record.offered.items():
        if not _is_offered_as(gpu, owners.get(uuid)) and record.of_gpu(uuid):
            offered[uuid] = gpu
    return offered


def retiring(owners: Mapping[str, Ownership], record: ClaimRecord) -> frozenset[str]:
    """Return the offered GPUs of which nothing more is to be allocated."""
    return frozenset(
        uuid
        for uuid, gpu in record.offered.items()
        if not _is_offered_as(gpu, owners.get(uuid)) or owners[uuid].retiring
    )


def is_left_to_claims(
    layout: DesiredGpu, applied: DesiredGpu | None, claims: ClaimsView, *, changing: bool
) -> bool:
    """Return whether the MIG instances of a GPU come and go with claims, and with nothing else.

    Of one that was never seen nothing is removed: the claims of an agent that lost its state may
    have it. What the device plugin ``applied``, or began to make while the GPU was ``changing``,
    has to go first.
    """
    if layout.claims is None:
        return False
    if claims.has(layout.uuid):
        return True
    return not changing and (applied is None or applied.claims is not None)


def _kubelet_reason(gpu: Gpu, kubelet: KubeletView | str) -> str:
    if isinstance(kubelet, str):
        return kubelet
    if not kubelet.fence:
        return WITHDRAWING
    uuids = {gpu.uuid, *(uuid for instance in gpu.instances for uuid in instance.uuids)}
    if not uuids.isdisjoint(map(physical, kubelet.allocatable)):
        return WITHDRAWING
    if held := uuids & kubelet.held.keys():
        names = {holder.text for uuid in held for holder in kubelet.held[uuid]}
        return f"held by {bounded_names(names)}"
    return ""


def _is_offered_as(gpu: OfferedGpu, ownership: Ownership | None) -> bool:
    """Return whether claims are still offered the same devices of a GPU."""
    offered = None if ownership is None else ownership.offered
    return offered is not None and offered.gpu == gpu.gpu
