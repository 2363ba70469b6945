"""What the node's driver shows, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class MigInstance:
    """One GPU instance with its compute instance: what a pod gets as a MIG device.

    ``profile_id`` is the number nvidia-smi prints for the GPU-instance profile;
    ``start`` and ``size`` count memory slices; cap minors are those of
    ``/dev/nvidia-caps/nvidia-cap<minor>`` (None where the driver tells none).
    A GPU instance without a compute instance has ``ci`` and ``uuid`` None.
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


@dataclass(frozen=True)
class Gpu:
    """One physical GPU as NVML shows it.

    ``numa`` is None where the system has no answer; ``mig_mode`` and
    ``mig_pending`` are None where the model has no MIG. A lost GPU keeps its
    identity from an earlier look and has ``lost`` set. ``brand`` is written as
    NVIDIA's images do ("tesla", "geforce").
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


@dataclass(frozen=True)
class Snapshot:
    """All GPUs of a node at one instant, with the driver that showed them.

    ``links`` scores pairs of GPU UUIDs (higher is closer; see ``preference``).
    """

    driver_version: str
    cuda_version: tuple[int, int]
    gpus: tuple[Gpu, ...]
    links: Mapping[frozenset[str], int] = field(default_factory=dict)
    simulated: bool = False

    def gpu(self, uuid: str) -> Gpu | None:
        """Return the GPU with this UUID, or None."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


def snapshot_from(answer: Mapping[str, Any]) -> Snapshot:
    """Build a snapshot from the discovery process's answer (plain JSON values)."""
    return Snapshot(
        driver_version=answer["driver_version"],
        cuda_version=(answer["cuda_version"][0], answer["cuda_version"][1]),
        gpus=tuple(_gpu_from(gpu) for gpu in answer["gpus"]),
        links=_links_from(answer["links"]),
        simulated=answer["simulated"],
    )


def _gpu_from(raw: Mapping[str, Any]) -> Gpu:
    plain = dict(raw)
    plain["compute_capability"] = tuple(plain["compute_capability"])
    plain["instances"] = tuple(MigInstance(**instance) for instance in plain["instances"])
    return Gpu(**plain)


def _links_from(raw: Iterable[tuple[str, str, int]]) -> dict[frozenset[str], int]:
    return {frozenset((one, other)): score for one, other, score in raw}
