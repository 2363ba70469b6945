"""Which GPUs are to have an MPS daemon now, from what is advertised of them and held."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from divvy.agent.gpu.device_id import is_client
from divvy.agent.gpu.hardware import Gpu, Snapshot
from divvy.agent.gpu.holders import Held
from divvy.agent.gpu.transition import Decision
from divvy.agent.mps.supervision import Ceiling
from divvy.model import DesiredGpu
from divvy.model.sharing import ALL_COMPUTE, Sharing


def sharing_by_mps(layout: DesiredGpu) -> Sharing | None:
    """Return how MPS shares a GPU of this layout, None where it does not."""
    return next((offer.sharing for offer in layout.offers if offer.sharing.by_mps), None)


def wanted_daemons(
    decisions: Mapping[str, Decision],
    snapshot: Snapshot,
    held: Held | None,
    started: Collection[str],
) -> dict[str, Ceiling]:
    """Return GPU UUID → what its daemon's clients may use at most.

    ``held`` is None where it is not known. A GPU that somebody holds otherwise gets none: its
    holder would be shut out. A daemon stays as long as a container is its client, and all that are
    ``started`` stay while the holders are unknown.
    """
    wanted = {}
    for uuid in {*decisions, *started}:
        gpu = snapshot.gpu(uuid)
        if gpu is None or not gpu.present:
            continue
        decision = decisions.get(uuid)
        sharing = None if decision is None else sharing_by_mps(decision.advertise.layout)
        ceiling = ceiling_of(sharing, gpu)
        if held is None:
            if uuid in started:
                wanted[uuid] = ceiling
            continue
        clients = {is_client(holder.device_id) for holder in held.get(uuid, ())}
        if True in clients or (sharing is not None and not clients and not gpu.mig_mode):
            wanted[uuid] = ceiling
    return wanted


def ceiling_of(sharing: Sharing | None, gpu: Gpu) -> Ceiling:
    """Return what the daemon itself enforces: a replica's part where nobody gets two of them."""
    if sharing is None or not sharing.one_per_container:
        return Ceiling(gpu.memory_mib, ALL_COMPUTE)
    return Ceiling(sharing.memory_mib or gpu.memory_mib, sharing.threads or ALL_COMPUTE)
