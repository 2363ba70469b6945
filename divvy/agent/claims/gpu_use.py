"""The use of a GPU by claims: whole, by shares, as MIG devices; and what is left."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from divvy.agent.claims.record import ClaimRecord
from divvy.model.claim_devices import COMPUTE, CORES
from divvy.model.offered_gpu import OfferedGpu

Kind = Literal["free", "whole", "shares", "mig"]
USES: tuple[Kind, ...] = ("free", "whole", "shares", "mig")


@dataclass(frozen=True)
class GpuUse:
    """MiB and per cent of a GPU's time that claims hold, and that they can still get."""

    kind: Kind
    memory_mib: int
    cores: int
    free_mib: int
    free_cores: int


def gpu_use(record: ClaimRecord, gpu: OfferedGpu) -> GpuUse:
    """Return how an offered GPU is used now."""
    held = [
        device
        for claim in record.of_gpu(gpu.uuid)
        for device in claim.devices
        if device.uuid == gpu.uuid
    ]
    memory, cores = sum(device.memory_mib for device in held), sum(device.cores for device in held)
    total = max(
        device.memory_mib if device.share is None else device.share.memory_mib
        for device in gpu.gpu.devices
        if device.kind != "mig"
    )
    if not held:
        return GpuUse("free", 0, 0, total, CORES)
    first = held[0].device
    if first.kind == "mig":
        slices = (gpu.gpu.counters or {}).get(COMPUTE, 1)
        used_slices = sum((device.device.consumes or {}).get(COMPUTE, 0) for device in held)
        whole = next(device.memory_mib for device in gpu.gpu.devices if device.kind == "gpu")
        cores = CORES * used_slices // slices
        return GpuUse("mig", memory, cores, max(0, whole - memory), CORES - cores)
    if first.kind == "gpu" or (cores >= CORES and memory >= total):
        return GpuUse("whole", memory, cores, 0, 0)
    return GpuUse("shares", memory, cores, max(0, total - memory), max(0, CORES - cores))
