"""Metrics of claims: how each GPU is used, what of it is free, whose claims hold it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from divvy.agent.claims.claim_shares import is_limited
from divvy.agent.claims.gpu_use import USES, gpu_use
from divvy.agent.claims.instance_plan import device_uuid
from divvy.agent.claims.record import ClaimRecord
from divvy.agent.gpu.hardware import Gpu
from divvy.agent.metrics.page import NodeGauge, Page
from divvy.model.api_names import Mode

_GPU = ["gpu", "uuid"]


def claim_gauges(page: Page, record: ClaimRecord) -> None:
    """Show every GPU that claims are offered, and who holds it."""
    held = page.gauge("divvy_claims_held", "Number of claims on a GPU.", _GPU)
    memory = page.gauge(
        "divvy_claims_memory_mib", "Memory of a GPU that claims hold, in MiB.", _GPU
    )
    cores = page.gauge(
        "divvy_claims_cores", "Compute time of a GPU that claims hold, in per cent.", _GPU
    )
    free = page.gauge(
        "divvy_claims_memory_free_mib", "GPU memory still available to claims, in MiB.", _GPU
    )
    idle = page.gauge(
        "divvy_claims_cores_free",
        "Compute time of a GPU still available to claims, in per cent.",
        _GPU,
    )
    used = page.gauge(
        "divvy_claims_gpu_use", "1 for the way in which claims use a GPU now.", [*_GPU, "use"]
    )
    for gpu in record.offered.values():
        where = (str(gpu.index), gpu.uuid)
        use = gpu_use(record, gpu)
        held.set(len(record.of_gpu(gpu.uuid)), *where)
        memory.set(use.memory_mib, *where)
        cores.set(use.cores, *where)
        free.set(use.free_mib, *where)
        idle.set(use.free_cores, *where)
        for kind in USES:
            used.set(kind == use.kind, *where, kind)
    by_tenant = page.gauge(
        "divvy_claims_of_tenant", "Claims that are held, by tenant (empty: none).", ["tenant"]
    )
    tenants = Counter(
        claim.devices[0].device.tenant or "" for claim in record.claims.values() if claim.devices
    )
    for tenant, number in sorted(tenants.items()):
        by_tenant.set(number, tenant)


def memory_of_claims(
    using: NodeGauge, record: ClaimRecord, gpus: Sequence[Gpu], memory: Mapping[str, float]
) -> None:
    """Show the memory in use on what a claim of one pod holds alone: all of a GPU, MIG devices.

    What a share uses its container's own account says.
    """
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    for claim in record.claims.values():
        if len(claim.pods) != 1:
            continue
        ((pod, _),) = claim.pods
        for held in claim.devices:
            gpu = by_uuid.get(held.uuid)
            uuid = None if gpu is None else device_uuid(gpu, held)
            if uuid is not None and uuid in memory and not is_limited(held):
                place = (uuid, held.uuid, claim.namespace, pod, "")
                using.set(memory[uuid], "", Mode.CLAIMS, held.device.name, *place)
