"""The GPUs that need an MPS daemon now, from what is advertised of them and held."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from divvy.agent.gpu.device_id import is_client, numeric_order
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.holders import Held, Holder
from divvy.agent.gpu.transition import Decision
from divvy.agent.mps.supervision import Ceiling, Share
from divvy.model import DesiredGpu
from divvy.model.sharing import ALL_COMPUTE, Sharing


def sharing_by_mps(layout: DesiredGpu) -> Sharing | None:
    """Return how MPS shares a GPU of this layout, None if it does not."""
    return next((offer.sharing for offer in layout.offers if offer.sharing.by_mps), None)


def wanted_daemons(
    decisions: Mapping[str, Decision],
    snapshot: Snapshot,
    held: Held | None,
    started: Collection[str],
) -> dict[str, Ceiling]:
    """Return GPU UUID → what its daemon's clients may use at most.

    ``held`` is None if it is not known. A GPU that somebody holds otherwise gets none: its
    holder would be shut out. A daemon stays as long as a container is its client, also where the
    GPU does not answer for a while; all that are ``started`` stay while the holders are unknown.
    """
    wanted = {}
    for uuid in {*decisions, *started}:
        gpu = snapshot.gpu(uuid)
        if gpu is None or gpu.lost or (gpu.fault and uuid not in started):
            continue
        decision = decisions.get(uuid)
        sharing = None if decision is None else sharing_by_mps(decision.advertise.layout)
        ceiling = ceiling_of(sharing, gpu)
        if held is None:
            if uuid in started:
                wanted[uuid] = replace(ceiling, shares=None)
            continue
        holders = held.get(uuid, ())
        clients = {is_client(holder.device_id) for holder in holders}
        is_free = sharing is not None and not clients and not gpu.mig_mode and gpu.present
        if True in clients or is_free:
            wanted[uuid] = replace(ceiling, shares=_shares(holders, sharing, gpu))
    return wanted


def share_of(device_ids: Sequence[str], sharing: Sharing | None, memory_mib: int) -> Share:
    """Return the share of a container with these replicas of one GPU, which has ``memory_mib``.

    No other container has the first of them: it names the share.
    """
    _, number = min(map(numeric_order, device_ids))
    if sharing is None:
        return Share(f"share_{number}", memory_mib, ALL_COMPUTE)
    whole = sharing.times(len(device_ids))
    return Share(f"share_{number}", whole.memory_mib or memory_mib, whole.threads or ALL_COMPUTE)


def _shares(holders: Iterable[Holder], sharing: Sharing | None, gpu: Gpu) -> tuple[Share, ...]:
    containers: dict[tuple[str, str, str], set[str]] = defaultdict(set)
    for holder in holders:
        # One that is only allocated gets its share when its container starts.
        if is_client(holder.device_id) and not holder.only_allocated:
            containers[holder.pod, holder.pod_uid, holder.container].add(holder.device_id)
    # What an init container had is a later container's of its pod, with more or fewer replicas.
    by_size = sorted(containers.values(), key=len)
    shares = (share_of(sorted(ids), sharing, gpu.memory_mib) for ids in by_size)
    largest = {share.name: share for share in shares}
    return tuple(sorted(largest.values(), key=lambda share: share.name))


def ceiling_of(sharing: Sharing | None, gpu: Gpu) -> Ceiling:
    """Return what the daemon itself enforces: a replica's part if no container gets two."""
    if sharing is None:
        return Ceiling(None, None)
    if not sharing.one_per_container:
        return Ceiling(gpu.memory_mib, ALL_COMPUTE)
    return Ceiling(sharing.memory_mib or gpu.memory_mib, sharing.threads or ALL_COMPUTE)
