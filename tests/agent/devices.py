"""Devices for tests: GPUs of one A100 node."""

from __future__ import annotations

from dataclasses import replace

from divvy.agent.gpu.hardware import Gpu, MigInstance, Snapshot
from divvy.agent.plugin.inventory import Device, Resource
from divvy.model.sharing import NO_PAGE, Compute, DeviceShare, Sharing

A100 = "NVIDIA A100-SXM4-40GB"


def gpu(index: int = 0, *, mig: bool = False, instances: tuple[MigInstance, ...] = ()) -> Gpu:
    return Gpu(
        index=index,
        uuid=f"GPU-{index}",
        product=A100,
        memory_mib=40960,
        minor=index,
        pci_bus_id=f"00000000:0{index}:00.0",
        compute_capability=(8, 0),
        numa=index % 2,
        mig_mode=mig,
        mig_pending=mig,
        instances=instances,
        brand="nvidia",
    )


def instance(gi: int, profile_id: int, start: int, size: int) -> MigInstance:
    return MigInstance(
        gi, profile_id, start, size, ci=0, uuid=f"MIG-{gi}", gi_cap=10 + gi, ci_cap=100 + gi
    )


def snapshot(*gpus: Gpu) -> Snapshot:
    return Snapshot("550.163.01", (12, 4), gpus)


def replicas(count: int, per_gpu: int, name: str = "nvidia.com/gpu.shared") -> Resource:
    devices = tuple(
        Device(f"GPU-{index}::{number}", f"GPU-{index}", f"GPU-{index}")
        for index in range(count)
        for number in range(per_gpu)
    )
    return Resource(name, devices, "gpu", Sharing(per_gpu, one_per_container=True).times(1))


def limited(count: int, per_gpu: int, mib: int, compute: Compute | None = None) -> Resource:
    sharing = Sharing(per_gpu, memory_mib=mib, action="prevent", compute=compute)
    return replace(replicas(count, per_gpu), sharing=replace(sharing, weight=100 // per_gpu))


def whole(count: int) -> Resource:
    devices = tuple(Device(f"GPU-{i}", f"GPU-{i}", f"GPU-{i}") for i in range(count))
    return Resource("nvidia.com/gpu", devices, "gpu")


def device_share(
    uuid: str, mib: int, compute: Compute | None = None, weight: int = 100, page: str = NO_PAGE
) -> DeviceShare:
    sharing = Sharing(memory_mib=mib, action="prevent", compute=compute, weight=weight)
    return DeviceShare(uuid, sharing, page)
