"""Claims as the API shows them: offered GPUs, and who holds how much of them."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.last_look import last_look
from conformance.cluster.namespaces import OWN_NAMESPACE
from conformance.cluster.slices import whole_gpus
from conformance.observe.device_memory import MAX_DEVIATION
from conformance.promise import ClaimPromise, NodePromise
from conformance.skips import not_applicable, not_made
from divvy.kube.kind import RESOURCE_CLAIM, RESOURCE_SLICE
from divvy.model.phrases import some
from divvy.plan.fit.live_claims import ClaimedGpu, LiveDevice, claimed_gpus

# A claim is released some seconds after its pod has gone.
_LEAVING = 30.0


def claimed_now(target: ClusterUnderTest, node: NodePromise) -> tuple[ClaimedGpu, ...]:
    """Return the GPUs of a node that are offered to claims, with their holders."""
    slices = target.api.find_known(RESOURCE_SLICE)
    claims, unread = target.api.find_whole(RESOURCE_CLAIM)
    driver = target.implementation.dra_driver
    if driver is not None:
        return whole_gpus(slices, claims, driver, node.name, unread)
    gpus = claimed_gpus(slices, claims, unread=unread)
    return tuple(gpu for gpu in gpus if gpu.node == node.name)


def divisible_by(gpus: Sequence[ClaimedGpu]) -> int:
    """Return the MiB that sizes of shares are rounded up to; skips if no claim has a size."""
    assert gpus, "the node offers no GPU to claims"
    steps = {device.step_mib for gpu in gpus for device in gpu.devices if device.kind == "share"}
    if not steps:
        not_applicable("its claims have no sizes")
    return max(steps)


def claimed_gpu_of(target: ClusterUnderTest, promise: ClaimPromise) -> ClaimedGpu:
    """Return a GPU as it is offered to claims once the run's own pods have left it."""
    gpus = [gpu for gpu in _without_leaving(target, promise.node) if gpu.index == promise.index]
    assert gpus, f"{promise.node.name} offers no GPU {promise.index} to claims"
    return gpus[0]


def require_unclaimed(target: ClusterUnderTest, node: NodePromise) -> None:
    """Skip where claims of others hold something of a node's GPUs."""
    gpus = _without_leaving(target, node)
    held = [holder.words for gpu in gpus for _, holder in gpu.holders]
    if held:
        not_made(f"its GPUs are held: {some(held)}")


def _without_leaving(target: ClusterUnderTest, node: NodePromise) -> tuple[ClaimedGpu, ...]:
    """Return a node's GPUs when claims of the run's own pods are gone, which takes seconds."""

    def are_left(gpus: Sequence[ClaimedGpu]) -> bool:
        holders = [holder for gpu in gpus for _, holder in gpu.holders]
        return not any(OWN_NAMESPACE.fullmatch(holder.namespace) for holder in holders)

    return last_look(lambda: claimed_now(target, node), are_left, _LEAVING)


def overcommitted(gpus: Sequence[ClaimedGpu], node: NodePromise) -> list[str]:
    """Return the shares of which more is given out than there is, whatever slices say."""
    lines = []
    for gpu in gpus:
        for device in gpu.devices:
            shares = [holder for holder in device.holders if holder.memory_mib is not None]
            memory = sum(share.memory_mib or 0 for share in shares)
            cores = sum(share.cores or 0 for share in shares)
            device_mib = _shared_mib(gpu, device, node)
            if memory > device_mib or cores > device.cores or len(shares) > device.most:
                given = f"{memory} MiB, {cores} % in {len(shares)} shares"
                there = f"{device_mib} MiB, {device.cores} % in {device.most}"
                lines.append(f"{gpu.name}: {given}, of {there}")
    return lines


def _shared_mib(gpu: ClaimedGpu, device: LiveDevice, node: NodePromise) -> int:
    """Return a device's memory, but not far more than the plan has for its GPU."""
    if gpu.index >= len(node.plan.gpus):
        return device.memory_mib
    planned = node.plan.gpus[gpu.index]
    shares, planned_mib = planned.claims and planned.claims.shares, planned.model.memory_mib
    if shares:
        planned_mib = shares.memory.of_gpu(planned_mib)
    is_as_planned = device.memory_mib <= planned_mib * (1 + MAX_DEVIATION)
    return device.memory_mib if is_as_planned else planned_mib


def tenants_together(gpus: Sequence[ClaimedGpu]) -> list[str]:
    """Name the GPUs on which two tenants have shares at once."""
    lines = []
    for gpu in gpus:
        tenants = sorted({device.tenant for device, _ in gpu.holders if device.tenant})
        if len(tenants) > 1:
            lines.append(f"{gpu.name}: {' and '.join(tenants)}")
    return lines
