"""Which GPUs claims are offered, and as what: a GPU changes only when no claim has anything of it.

The scheduler counts what is allocated against what is published: a device that is dropped or
reshaped while a claim has it would be allocated a second time. So a GPU whose profile has changed
stays as it is, tainted, until its claims are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from divvy.agent.decide.claim_record import ClaimRecord, OfferedGpu
from divvy.agent.decide.desired import DesiredState
from divvy.agent.decide.device_id import physical
from divvy.agent.decide.hardware import Gpu, Snapshot
from divvy.agent.decide.holders import Held, Holder
from divvy.agent.decide.reconciliation import KubeletView
from divvy.agent.decide.transition import Decision
from divvy.model import DesiredGpu, model_of_product
from divvy.model.claim_devices import claimable_gpu, has_shares
from divvy.model.contract import State
from divvy.model.sharing import sharing_of_claims

CLAIM_ID = "claim:"


@dataclass(frozen=True)
class Offers:
    """The GPUs in the slices by UUID; of ``retiring`` ones no further device is to be allocated."""

    offered: Mapping[str, OfferedGpu]
    retiring: frozenset[str]


def wanted_offers(
    desired: DesiredState, snapshot: Snapshot, before: Mapping[str, OfferedGpu]
) -> dict[str, OfferedGpu]:
    """Return every GPU of a node as claims should be offered it, by UUID.

    One that does not answer as it should is offered as ``before``, if at all.
    """
    wanted = {}
    for layout in desired.node.gpus:
        gpu = snapshot.gpu(layout.uuid)
        if layout.claims is None or gpu is None:
            continue
        if gpu.present:
            wanted[gpu.uuid] = _offered(layout, gpu, snapshot.simulated)
        elif gpu.uuid in before:
            wanted[gpu.uuid] = before[gpu.uuid]
    return wanted


def too_small(desired: DesiredState, snapshot: Snapshot) -> dict[str, str]:
    """Say of each GPU, by UUID, why it has no shares although its profile offers them."""
    found = {}
    for layout in desired.node.gpus:
        gpu = snapshot.gpu(layout.uuid)
        shares = None if layout.claims is None else layout.claims.shares
        if gpu is None or shares is None or has_shares(gpu.memory_mib, shares):
            continue
        found[gpu.uuid] = (
            f"no shares: this GPU's {gpu.memory_mib:,} MiB is less than two steps of "
            f"{shares.memory.step_mib:,} MiB"
        )
    return found


def next_offers(
    before: Mapping[str, OfferedGpu],
    wanted: Mapping[str, OfferedGpu],
    free: Collection[str],
    add: bool,
) -> Offers:
    """Return what is offered next: ``free`` are GPUs of which no claim has anything.

    With ``add`` GPUs may come in: nothing of them is the device plugin's any more.
    """
    offered: dict[str, OfferedGpu] = {}
    retiring = set()
    for uuid, gpu in before.items():
        target = wanted.get(uuid)
        if target is not None and target.gpu == gpu.gpu:
            offered[uuid] = target
        elif uuid not in free:
            offered[uuid] = gpu
            retiring.add(uuid)
        elif target is not None:
            offered[uuid] = target
    if add:
        for uuid, gpu in wanted.items():
            offered.setdefault(uuid, gpu)
    return Offers(offered, frozenset(retiring))


def plugin_is_done(
    desired: DesiredState,
    snapshot: Snapshot,
    kubelet: KubeletView | str,
    decided: Mapping[str, Decision],
) -> bool:
    """Return whether the kubelet neither has nor would allocate a device of any GPU.

    Where a node advertises a resource, the scheduler takes it for that of the device plugin alone;
    so no GPU of a node is offered to claims before the last one is free of it.
    """
    if isinstance(kubelet, str) or not kubelet.fence:
        return False
    uuids = set()
    for layout in desired.node.gpus:
        decision = decided.get(layout.uuid)
        if decision is None or decision.provisional or decision.state is not State.READY:
            return False
        gpu = snapshot.gpu(layout.uuid)
        if layout.claims is None or gpu is None:
            return False
        uuids |= {gpu.uuid, *(one.uuid for one in gpu.instances if one.uuid is not None)}
    known = {physical(each) for each in kubelet.allocatable} | set(kubelet.held)
    return uuids.isdisjoint(known)


def claim_holders(record: ClaimRecord) -> Held:
    """Return who holds GPUs by claims, as the change to another profile sees them.

    A GPU that is in the slices may be allocated at any instant, and counts as held.
    """
    held: dict[str, tuple[Holder, ...]] = {}
    for uuid in record.offered.keys() | {gpu for c in record.claims.values() for gpu in c.gpus}:
        holders = tuple(
            Holder(f"{claim.namespace}/{pod}", "", "", f"{CLAIM_ID}{claim.uid}", pod_uid)
            for claim in record.of_gpu(uuid)
            for pod, pod_uid in claim.pods or (("", ""),)
        )
        held[uuid] = holders or (Holder("", "", "", uuid),)
    return held


def _offered(layout: DesiredGpu, gpu: Gpu, simulated: bool) -> OfferedGpu:
    assert layout.claims is not None
    model = model_of_product(gpu.product, gpu.memory_mib)
    # A GPU whose model has MIG, and that lacks it here (a virtual one), is whole or in shares.
    claims = layout.claims
    if gpu.mig_mode is None and claims.mig:
        claims = claims.model_copy(update={"mig": ()})
    shares = claims.shares
    offered = OfferedGpu(
        claimable_gpu(gpu.uuid, gpu.memory_mib, model, claims),
        gpu.index,
        gpu.product,
        "" if model is None else model.architecture,
        simulated,
    )
    if shares is None:
        return offered
    return replace(
        offered,
        spread=shares.placement == "spread",
        sharing=sharing_of_claims(shares),
    )
