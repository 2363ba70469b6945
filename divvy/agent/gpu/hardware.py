"""``Snapshot`` of the node's driver and its GPUs, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from divvy.agent.gpu.plain_values import from_plain


@dataclass(frozen=True)
class MigInstance:
    """One GPU instance with its compute instance: what a pod gets as a MIG device.

    ``profile_id`` is the number nvidia-smi prints for the GPU-instance profile;
    ``start`` and ``size`` count memory slices; cap minors are those of
    ``/dev/nvidia-caps/nvidia-cap<minor>`` (None if the driver tells none).
    A GPU instance without a compute instance has ``ci`` and ``uuid`` None. ``others`` are the MIG
    devices on it beside ``uuid``: somebody else has split it into several compute instances. It is
    ``partial`` if ``uuid`` has only a part of its compute.
    """

    gi: int
    profile_id: int
    start: int
    size: int
    ci: int | None = None
    uuid: str | None = None
    memory_mib: int = 0
    sms: int = 0
    gi_cap: int | None = None
    ci_cap: int | None = None
    others: tuple[str, ...] = ()
    partial: bool = False

    @property
    def uuids(self) -> tuple[str, ...]:
        """Return the UUIDs of all MIG devices on it."""
        return () if self.uuid is None else (self.uuid, *self.others)


@dataclass(frozen=True)
class Gpu:
    """One physical GPU as NVML shows it.

    ``numa`` is None if the system has no answer; ``mig_mode`` and
    ``mig_pending`` are None if the model has no MIG. A GPU that is gone keeps
    what an earlier look saw of it and has ``lost`` set; so does one that does not answer as it
    should, whose ``fault`` says why. ``brand`` is written as NVIDIA's images do ("tesla",
    "geforce"), ``pcie_root`` as Kubernetes does ("pci0000:00"). ``recovery`` is what the
    driver asks for to be done with the GPU, "" for nothing. ``memory_problem`` says why processes
    can use its memory without the driver, so that no limit holds; "" if they cannot.
    """

    index: int
    uuid: str
    product: str
    memory_mib: int
    minor: int
    pci_bus_id: str
    compute_capability: tuple[int, int] = (0, 0)
    numa: int | None = None
    mig_mode: bool | None = None
    mig_pending: bool | None = None
    instances: tuple[MigInstance, ...] = ()
    lost: bool = False
    brand: str = ""
    pcie_root: str = ""
    fault: str = ""
    recovery: str = ""
    memory_problem: str = ""

    @property
    def present(self) -> bool:
        """Return whether the driver describes it now."""
        return not (self.lost or self.fault)

    @property
    def uuids(self) -> frozenset[str]:
        """Return the UUIDs of the GPU and of all its MIG devices."""
        return frozenset((self.uuid, *(uuid for part in self.instances for uuid in part.uuids)))


@dataclass(frozen=True)
class Snapshot:
    """All GPUs of a node at one instant, with the driver that showed them.

    ``links`` scores pairs of GPU UUIDs (higher is closer; see ``preferred_allocation``);
    ``unreadable`` says, a sentence each, which GPUs never answered: nothing is known of them.
    """

    driver_version: str
    cuda_version: tuple[int, int]
    gpus: tuple[Gpu, ...]
    links: Mapping[frozenset[str], int] = field(default_factory=dict)
    simulated: bool = False
    unreadable: tuple[str, ...] = ()

    def gpu(self, uuid: str) -> Gpu | None:
        """Return the GPU with this UUID, or None."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    @property
    def cap_minors(self) -> frozenset[int]:
        """Return the minors of the capability nodes of all MIG devices."""
        return frozenset(
            minor
            for gpu in self.gpus
            if gpu.present
            for instance in gpu.instances
            for minor in (instance.gi_cap, instance.ci_cap)
            if minor is not None
        )


def gpu_from(raw: Mapping[str, Any]) -> Gpu:
    """Build a GPU from plain JSON values: the NVML process's, or the checkpoint's."""
    return from_plain(
        Gpu,
        raw,
        compute_capability=tuple(raw["compute_capability"]),
        instances=tuple(map(_instance_from, raw["instances"])),
    )


def _instance_from(raw: Mapping[str, Any]) -> MigInstance:
    return from_plain(MigInstance, raw, others=tuple(raw["others"]))
