"""``wanted_offers``: what claims should be offered of each GPU by its profile."""

from __future__ import annotations

from collections.abc import Mapping

from divvy.agent.claims.record import ClaimRecord
from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.holders import Held, Holder
from divvy.model import DesiredGpu, model_of_product
from divvy.model.claim_devices import has_shares
from divvy.model.offered_gpu import OfferedGpu, offered_gpu

CLAIM_ID = "claim:"


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


def missing_shares(desired: DesiredState, snapshot: Snapshot) -> dict[str, str]:
    """Return for each GPU, by UUID, why it has no shares although its profile offers them."""
    reasons = {}
    for layout in desired.node.gpus:
        gpu = snapshot.gpu(layout.uuid)
        shares = None if layout.claims is None else layout.claims.shares
        if gpu is None or shares is None:
            continue
        if gpu.memory_problem:
            reasons[gpu.uuid] = f"no shares: no limit of its memory holds: {gpu.memory_problem}"
        elif not has_shares(gpu.memory_mib, shares):
            reasons[gpu.uuid] = (
                f"no shares: this GPU's {gpu.memory_mib:,} MiB is less than two steps of "
                f"{shares.memory.step_mib:,} MiB"
            )
    return reasons


def claim_holders(record: ClaimRecord, unknown: str = "") -> Held:
    """Return who holds GPUs by claims, as the change to another profile sees them.

    A GPU that is in the slices may be allocated at any instant, and counts as held; ``unknown``
    says why it is not known whether it is.
    """
    held: dict[str, tuple[Holder, ...]] = {}
    for uuid in record.offered.keys() | {gpu for c in record.claims.values() for gpu in c.gpus}:
        holders = tuple(
            Holder(f"{claim.namespace}/{pod}", "", "", f"{CLAIM_ID}{claim.uid}", pod_uid)
            for claim in record.of_gpu(uuid)
            for pod, pod_uid in claim.pods or (("", ""),)
        )
        held[uuid] = holders or (Holder("", unknown, "", uuid),)
    return held


def _offered(layout: DesiredGpu, gpu: Gpu, simulated: bool) -> OfferedGpu:
    assert layout.claims is not None
    model = model_of_product(gpu.product, gpu.memory_mib)
    # A GPU whose model has MIG, and that lacks it here (a virtual one), is whole or in shares.
    claims = layout.claims
    if gpu.mig_mode is None and claims.mig:
        claims = claims.model_copy(update={"mig": ()})
    if gpu.memory_problem:
        claims = claims.model_copy(update={"shares": None})
    return offered_gpu(
        gpu.uuid, gpu.index, gpu.product, gpu.memory_mib, model, claims, simulated=simulated
    )
