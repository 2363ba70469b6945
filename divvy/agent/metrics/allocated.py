"""The share of the node's GPUs that each pod was allocated: a team is charged for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from divvy.agent.claims.record import ClaimRecord
from divvy.agent.gpu.device_id import is_share, physical
from divvy.agent.gpu.hardware import Gpu, MigInstance
from divvy.agent.gpu.holders import Holder
from divvy.agent.metrics.page import Page
from divvy.agent.plugin.inventory import Resource
from divvy.model import model_of_product
from divvy.model.claim_devices import CORES
from divvy.model.sharing import Sharing

Kind = Literal["whole", "mig", "share"]
CLAIMS = "claims"
"""What stands for the resource of a device that a claim was allocated."""
_CLAIM_KINDS: Mapping[str, Kind] = {"gpu": "whole", "share": "share", "mig": "mig"}


@dataclass(frozen=True)
class Recipient:
    """Who was allocated what: ``uuid`` is the GPU's, ``pod`` of a claim the first of its pods."""

    kind: Kind
    resource: str
    uuid: str
    namespace: str
    pod: str


@dataclass(frozen=True)
class Allocated:
    """Devices, their memory, and their part of the GPU's compute in per cent."""

    devices: int
    memory_mib: float
    cores: float

    def __add__(self, other: Allocated) -> Allocated:
        return Allocated(
            self.devices + other.devices,
            self.memory_mib + other.memory_mib,
            self.cores + other.cores,
        )


def allocated_gauges(page: Page, allocated: Mapping[Recipient, Allocated]) -> None:
    """Show what each pod has been allocated."""
    labels = ["kind", "resource", "uuid", "namespace", "pod"]
    devices = page.gauge("divvy_allocated_devices", "Devices that a pod was allocated.", labels)
    memory = page.gauge(
        "divvy_allocated_memory_mib", "GPU memory that a pod was allocated, in MiB.", labels
    )
    cores = page.gauge(
        "divvy_allocated_cores",
        "Compute that a pod was allocated, in per cent of one GPU.",
        labels,
    )
    for recipient, has in allocated.items():
        where = (
            recipient.kind,
            recipient.resource,
            recipient.uuid,
            recipient.namespace,
            recipient.pod,
        )
        devices.set(has.devices, *where)
        memory.set(has.memory_mib, *where)
        cores.set(has.cores, *where)


def allocated(
    resources: Sequence[Resource],
    holders: Iterable[Holder],
    record: ClaimRecord,
    gpus: Sequence[Gpu],
) -> dict[Recipient, Allocated]:
    """Return what every pod has been allocated by the device plugin and by claims.

    Without what is not known: the size of a share that is no longer offered, and what GPUs that
    are gone had.
    """
    sums: dict[Recipient, Allocated] = {}
    for recipient, part in (*_by_plugin(resources, holders, gpus), *_by_claims(record, gpus)):
        sums[recipient] = sums[recipient] + part if recipient in sums else part
    return sums


def _by_plugin(
    resources: Sequence[Resource], holders: Iterable[Holder], gpus: Sequence[Gpu]
) -> Iterator[tuple[Recipient, Allocated]]:
    shared = {
        (resource.name, device.id): resource.sharing
        for resource in resources
        if resource.kind != "file"
        for device in resource.devices
    }
    parts: dict[str, tuple[Gpu, MigInstance | None]] = {gpu.uuid: (gpu, None) for gpu in gpus}
    parts |= {part.uuid: (gpu, part) for gpu in gpus for part in gpu.instances if part.uuid}
    for holder in holders:
        gpu, instance = parts.get(physical(holder.device_id), (None, None))
        sharing = shared.get((holder.resource, holder.device_id))
        if gpu is None or (sharing is None and is_share(holder.device_id)):
            continue
        namespace, _, pod = holder.pod.partition("/")
        kind: Kind = "whole" if instance is None else "mig"
        if sharing is not None and sharing.is_shared:
            kind = "share"
        recipient = Recipient(kind, holder.resource, gpu.uuid, namespace, pod)
        yield recipient, _part(_all_of(gpu, instance), sharing or Sharing())


def _all_of(gpu: Gpu, instance: MigInstance | None) -> Allocated:
    """Return a whole GPU, or a MIG device of it."""
    if instance is None:
        return Allocated(1, gpu.memory_mib, CORES)
    cores = _mig_cores(gpu, instance.profile_id, instance.memory_mib)
    return Allocated(1, instance.memory_mib, cores)


def _mig_cores(gpu: Gpu, profile_id: int, memory_mib: int) -> float:
    """Return the compute slices of a MIG device, of those that its GPU has, in per cent.

    Of a GPU that no data describes, its part of the memory.
    """
    model = model_of_product(gpu.product, gpu.memory_mib)
    if model is not None and model.mig is not None:
        for profile in model.mig.profiles:
            if profile.profile_id == profile_id:
                return CORES * profile.compute_slices / model.mig.compute_slices
    return CORES * memory_mib / gpu.memory_mib


def _part(whole: Allocated, sharing: Sharing) -> Allocated:
    """Return one replica of a device: by its limits, and an equal part of what has none."""
    memory = sharing.memory_mib or whole.memory_mib / sharing.replicas
    if sharing.compute is not None:
        return Allocated(1, memory, whole.cores * sharing.weight / CORES)
    return Allocated(1, memory, whole.cores / sharing.replicas)


def _by_claims(record: ClaimRecord, gpus: Sequence[Gpu]) -> Iterator[tuple[Recipient, Allocated]]:
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    for claim in record.claims.values():
        pod = min((name for name, _ in claim.pods), default="")
        for held in claim.devices:
            gpu = by_uuid.get(held.uuid)
            if gpu is None:
                continue
            cores: float = held.cores
            if held.device.profile is not None:
                cores = _mig_cores(gpu, held.device.profile.profile_id, held.memory_mib)
            kind = _CLAIM_KINDS[held.device.kind]
            recipient = Recipient(kind, CLAIMS, held.uuid, claim.namespace, pod)
            yield recipient, Allocated(1, held.memory_mib, cores)
