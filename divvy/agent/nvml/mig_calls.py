"""The NVML calls about MIG: which instances there are, and how they come and go.

Runs in the child process only (see ``divvy.agent.nvml.child``).
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynvml as nvml

from divvy.agent.nvml.cap_nodes import cap_minors, make_cap_nodes

# The compute-instance profile that fills a GPU instance of a profile, by its
# NVML number (nvml.h: GPU_INSTANCE_PROFILE_* → COMPUTE_INSTANCE_PROFILE_*).
_WHOLE_COMPUTE_INSTANCE = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 0, 8: 1, 9: 0}


class OtherInstance(Exception):
    """A GPU instance is not the one that it is taken for."""


class HiddenDevice(Exception):
    """There is a MIG device that the driver does not show: which one is unknown."""


@dataclass(frozen=True)
class _MigDevice:
    ci: int | None = None
    uuid: str | None = None
    memory_mib: int = 0
    sms: int = 0
    partial: bool = False


def handle(bus_id: str) -> Any:
    """Return the handle of a GPU by its PCI address.

    The only lookup that opens no other GPU (nvml.h, nvmlDeviceGetHandleByPciBusId and …ByUUID).
    """
    return nvml.nvmlDeviceGetHandleByPciBusId(bus_id)


def mig_mode(handle: Any) -> tuple[bool | None, bool | None]:
    """Return MIG mode as it is and as it will be; None if the GPU has none."""
    try:
        current, pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError_NotSupported:
        return None, None
    return bool(current), bool(pending)


def instances(handle: Any, gpu_minor: int, root: Path) -> list[dict[str, Any]]:
    """Describe the GPU instances with the MIG device on each; raises HiddenDevice.

    The driver hides a MIG device from who cannot open its device nodes, from root too where there
    are none. They are made then: it may be held.
    """
    caps = cap_minors(root, gpu_minor)
    described = _described(handle, caps)
    if hidden := _hidden(handle, described):
        minors = {minor for path in _access_paths(hidden) if (minor := caps.get(path)) is not None}
        make_cap_nodes(root, minors)
        described = _described(handle, caps)
        if still := _hidden(handle, described):
            raise HiddenDevice(f"the driver hides the MIG device of GPU instance {min(still)}")
    return described


def _described(handle: Any, caps: dict[str, int]) -> list[dict[str, Any]]:
    migs = _mig_devices(handle)
    instances = []
    for gi_handle in _gpu_instances(handle):
        info = nvml.nvmlGpuInstanceGetInfo(gi_handle)
        first, *others = migs.get(info.id, [_MigDevice()])
        prefix = f"gi{info.id}"
        instances.append(
            {
                "gi": info.id,
                "profile_id": info.profileId,
                "start": info.placement.start,
                "size": info.placement.size,
                "ci": first.ci,
                "uuid": first.uuid,
                "memory_mib": first.memory_mib,
                "sms": first.sms,
                "gi_cap": caps.get(f"{prefix}/access"),
                "ci_cap": None if first.ci is None else caps.get(f"{prefix}/ci{first.ci}/access"),
                "others": [other.uuid for other in others],
                "partial": first.partial,
            }
        )
    return sorted(instances, key=lambda instance: (instance["start"], instance["gi"]))


def _hidden(handle: Any, described: list[dict[str, Any]]) -> dict[int, list[int]]:
    """Return the compute instances of GPU instances that show no MIG device, by their numbers."""
    hidden = {}
    for instance in described:
        if instance["uuid"] is not None:
            continue
        with contextlib.suppress(nvml.NVMLError_NotFound):  # it has gone meanwhile
            gi = nvml.nvmlDeviceGetGpuInstanceById(handle, instance["gi"])
            numbers = [nvml.nvmlComputeInstanceGetInfo(ci).id for ci in _compute_instances(gi)]
            if numbers:
                hidden[instance["gi"]] = numbers
    return hidden


def _access_paths(hidden: dict[int, list[int]]) -> Iterator[str]:
    for gi, numbers in hidden.items():
        yield f"gi{gi}/access"
        for ci in numbers:
            yield f"gi{gi}/ci{ci}/access"


def _mig_devices(handle: Any) -> dict[int, list[_MigDevice]]:
    """Return the MIG devices on each GPU instance."""
    devices: dict[int, list[_MigDevice]] = {}
    for mig in mig_handles(handle):
        attributes = nvml.nvmlDeviceGetAttributes(mig)
        devices.setdefault(nvml.nvmlDeviceGetGpuInstanceId(mig), []).append(
            _MigDevice(
                nvml.nvmlDeviceGetComputeInstanceId(mig),
                nvml.nvmlDeviceGetUUID(mig),
                attributes.memorySizeMB,
                attributes.multiprocessorCount,
                attributes.computeInstanceSliceCount < attributes.gpuInstanceSliceCount,
            )
        )
    return devices


def mig_handles(handle: Any) -> Iterator[Any]:
    """Yield the handles of the MIG devices of a GPU that the driver shows."""
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError_NotFound:
            continue


def _mig_uuid(handle: Any, gi: int) -> str | None:
    """Return the UUID of the first MIG device on a GPU instance, or None."""
    for mig in mig_handles(handle):
        if nvml.nvmlDeviceGetGpuInstanceId(mig) == gi:
            return str(nvml.nvmlDeviceGetUUID(mig))
    return None


def _gpu_instances(handle: Any) -> list[Any]:
    handles = []
    for profile in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, profile)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            continue
        instances = (nvml.c_nvmlGpuInstance_t * info.instanceCount)()
        count = ctypes.c_uint(info.instanceCount)
        nvml.nvmlDeviceGetGpuInstances(handle, info.id, instances, ctypes.byref(count))
        handles.extend(instances[: count.value])
    return handles


def _compute_instances(gi: Any) -> list[Any]:
    handles = []
    for profile in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                gi, profile, nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            )
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            continue
        instances = (nvml.c_nvmlComputeInstance_t * info.instanceCount)()
        count = ctypes.c_uint(info.instanceCount)
        nvml.nvmlGpuInstanceGetComputeInstances(gi, info.id, instances, ctypes.byref(count))
        handles.extend(instances[: count.value])
    return handles


def set_mig_mode(bus_id: str, *, enabled: bool) -> dict[str, Any]:
    """Ask for MIG mode on or off; ``pending`` says whether a reset is still needed."""
    gpu = handle(bus_id)
    nvml.nvmlDeviceSetMigMode(gpu, int(enabled))
    current, pending = nvml.nvmlDeviceGetMigMode(gpu)
    return {"current": bool(current), "pending": bool(pending)}


def create_instance(bus_id: str, nvml_profile: int, start: int, size: int) -> dict[str, Any]:
    """Create a GPU instance at this placement with one compute instance filling it."""
    gpu = handle(bus_id)
    profile = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, nvml_profile)
    placement = nvml.c_nvmlGpuInstancePlacement_t(start, size)
    # The binding passes the placement on as it is, and the library wants its address.
    gi = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile.id, ctypes.byref(placement))
    return {"gi": nvml.nvmlGpuInstanceGetInfo(gi).id, **_fill(gi, nvml_profile)}


def complete_instance(bus_id: str, gi: int, nvml_profile: int) -> dict[str, Any]:
    """Create the compute instance of a GPU instance that has none."""
    gpu = handle(bus_id)
    return _fill(nvml.nvmlDeviceGetGpuInstanceById(gpu, gi), nvml_profile)


def _fill(gi: Any, nvml_profile: int) -> dict[str, Any]:
    whole = _WHOLE_COMPUTE_INSTANCE[nvml_profile]
    shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    profile = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, whole, shared)
    ci = nvml.nvmlGpuInstanceCreateComputeInstance(gi, profile.id)
    return {"ci": nvml.nvmlComputeInstanceGetInfo(ci).id}


def destroy_instance(bus_id: str, gi: int, uuid: str | None) -> dict[str, Any]:
    """Destroy a GPU instance and its compute instances.

    ``uuid`` is its first MIG device's, None of one that has no compute instance: the driver gives
    the number ``gi`` to another instance when one is gone. Raises OtherInstance.
    """
    gpu = handle(bus_id)
    present = _mig_uuid(gpu, gi)
    if present is not None and present != uuid:
        raise OtherInstance(f"GPU instance {gi} is {present}, not {uuid}")
    instance = nvml.nvmlDeviceGetGpuInstanceById(gpu, gi)
    parts = _compute_instances(instance)
    if parts and present is None:
        raise OtherInstance(f"the driver hides the MIG device of GPU instance {gi}")
    for compute in parts:
        nvml.nvmlComputeInstanceDestroy(compute)
    nvml.nvmlGpuInstanceDestroy(instance)
    return {}
