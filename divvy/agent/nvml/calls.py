"""The NVML calls the agent makes; each returns plain JSON values.

Runs in the child process only (see ``divvy.agent.nvml.child``).
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml as nvml

# Scores of the common ancestor of two GPUs, as NVIDIA's allocator weighs them
# (a higher score is a closer pair), plus 100 for every NVLink between them.
_ANCESTOR_SCORE = {
    nvml.NVML_TOPOLOGY_INTERNAL: 60,
    nvml.NVML_TOPOLOGY_SINGLE: 50,
    nvml.NVML_TOPOLOGY_MULTIPLE: 40,
    nvml.NVML_TOPOLOGY_HOSTBRIDGE: 30,
    nvml.NVML_TOPOLOGY_CPU: 20,
    nvml.NVML_TOPOLOGY_SYSTEM: 10,
}
_NVLINK_SCORE = 100
# The compute-instance profile that fills a GPU instance of a profile, by its
# NVML number (nvml.h: GPU_INSTANCE_PROFILE_* → COMPUTE_INSTANCE_PROFILE_*).
_WHOLE_COMPUTE_INSTANCE = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 6, 7: 0, 8: 1, 9: 0}
# NVML's brands (nvml.h: nvmlBrandType_t) as NVIDIA_REQUIRE_CUDA of its images names them.
_BRANDS = {
    1: "quadro",
    2: "tesla",
    3: "nvs",
    4: "grid",
    5: "geforce",
    6: "titan",
    7: "vapps",
    8: "vpc",
    9: "vcs",
    10: "vws",
    11: "cloudgaming",
    12: "quadrortx",
    13: "nvidiartx",
    14: "nvidia",
    15: "geforcertx",
    16: "titanrtx",
}


def load(library: str) -> None:
    """Load NVML from this absolute path and initialise it."""
    nvml.nvmlLib = ctypes.CDLL(library)
    nvml.nvmlInit()


def simulated() -> bool:
    """Tell whether the loaded library is the simulated driver's."""
    return hasattr(nvml.nvmlLib, "divvySimulated")


def snapshot(root: Path) -> dict[str, Any]:
    """Describe every GPU, its MIG instances and the links between GPUs."""
    cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
    handles: list[tuple[str, Any]] = []
    gpus: list[dict[str, Any]] = []
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            gpu = _gpu(index, handle, root)
        except (nvml.NVMLError_GpuIsLost, nvml.NVMLError_Unknown, nvml.NVMLError_NoPermission):
            continue  # the caller knows it from an earlier look and marks it lost
        handles.append((gpu["uuid"], handle))
        gpus.append(gpu)
    return {
        "driver_version": nvml.nvmlSystemGetDriverVersion(),
        "cuda_version": [cuda // 1000, cuda % 1000 // 10],
        "gpus": gpus,
        "links": _links(handles),
        "simulated": simulated(),
    }


def _gpu(index: int, handle: Any, root: Path) -> dict[str, Any]:
    pci = nvml.nvmlDeviceGetPciInfo(handle)
    minor = nvml.nvmlDeviceGetMinorNumber(handle)
    current, pending = _mig_mode(handle)
    return {
        "index": index,
        "uuid": nvml.nvmlDeviceGetUUID(handle),
        "product": nvml.nvmlDeviceGetName(handle),
        "memory_mib": nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
        "minor": minor,
        "pci_bus_id": pci.busId,
        "compute_capability": list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "numa": _numa(handle),
        "mig_mode": current,
        "mig_pending": pending,
        "instances": _instances(handle, minor, root) if current else [],
        "lost": False,
        "brand": _brand(handle),
    }


def _brand(handle: Any) -> str:
    try:
        return _BRANDS.get(nvml.nvmlDeviceGetBrand(handle), "unknown")
    except nvml.NVMLError:
        return "unknown"


def _mig_mode(handle: Any) -> tuple[bool | None, bool | None]:
    try:
        current, pending = nvml.nvmlDeviceGetMigMode(handle)
    except nvml.NVMLError_NotSupported:
        return None, None
    return bool(current), bool(pending)


def _numa(handle: Any) -> int | None:
    """Return the NUMA node nearest to a GPU, None where there is not exactly one.

    nvmlDeviceGetNumaNodeId is another thing: it answers for GPUs that are nodes themselves.
    """
    try:
        (mask,) = nvml.nvmlDeviceGetMemoryAffinity(handle, 1, nvml.NVML_AFFINITY_SCOPE_NODE)
    except nvml.NVMLError:
        return None
    return int(mask).bit_length() - 1 if int(mask).bit_count() == 1 else None


def _links(handles: list[tuple[str, Any]]) -> list[tuple[str, str, int]]:
    bus_ids = {uuid: nvml.nvmlDeviceGetPciInfo(handle).busId for uuid, handle in handles}
    by_bus_id = {bus_id: uuid for uuid, bus_id in bus_ids.items()}
    nvlinks: dict[frozenset[str], int] = {}
    for uuid, handle in handles:
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                if not nvml.nvmlDeviceGetNvLinkState(handle, link):
                    continue
                remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId
            except nvml.NVMLError:
                break
            if remote in by_bus_id:
                pair = frozenset((uuid, by_bus_id[remote]))
                nvlinks[pair] = nvlinks.get(pair, 0) + 1
    scores = []
    for position, (one, handle) in enumerate(handles):
        for other, other_handle in handles[position + 1 :]:
            try:
                level = nvml.nvmlDeviceGetTopologyCommonAncestor(handle, other_handle)
            except nvml.NVMLError:
                level = nvml.NVML_TOPOLOGY_SYSTEM
            # Each end counts its own side of a link.
            links = nvlinks.get(frozenset((one, other)), 0) // 2
            scores.append((one, other, _ANCESTOR_SCORE.get(level, 10) + _NVLINK_SCORE * links))
    return scores


def _instances(handle: Any, gpu_minor: int, root: Path) -> list[dict[str, Any]]:
    caps = cap_minors(root)
    migs = _mig_devices(handle)
    found = []
    for gi_handle in _gpu_instances(handle):
        info = nvml.nvmlGpuInstanceGetInfo(gi_handle)
        ci, uuid, memory_mib, sms = migs.get(info.id, (None, None, 0, 0))
        prefix = f"gpu{gpu_minor}/gi{info.id}"
        found.append(
            {
                "gi": info.id,
                "profile_id": info.profileId,
                "start": info.placement.start,
                "size": info.placement.size,
                "ci": ci,
                "uuid": uuid,
                "memory_mib": memory_mib,
                "sms": sms,
                "gi_cap": caps.get(f"{prefix}/access"),
                "ci_cap": None if ci is None else caps.get(f"{prefix}/ci{ci}/access"),
            }
        )
    return sorted(found, key=lambda instance: (instance["start"], instance["gi"]))


def cap_minors(root: Path) -> dict[str, int]:
    """Read ``proc/driver/nvidia-caps/mig-minors``: access path → device minor."""
    try:
        text = (root / "proc/driver/nvidia-caps/mig-minors").read_text()
    except OSError:
        return {}
    return {path: int(minor) for path, minor in re.findall(r"^(\S+) (\d+)$", text, re.MULTILINE)}


def _mig_devices(handle: Any) -> dict[int, tuple[int, str, int, int]]:
    devices = {}
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            mig = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except nvml.NVMLError_NotFound:
            continue
        attributes = nvml.nvmlDeviceGetAttributes(mig)
        devices[nvml.nvmlDeviceGetGpuInstanceId(mig)] = (
            nvml.nvmlDeviceGetComputeInstanceId(mig),
            nvml.nvmlDeviceGetUUID(mig),
            attributes.memorySizeMB,
            attributes.multiprocessorCount,
        )
    return devices


def _gpu_instances(handle: Any) -> list[Any]:
    found = []
    for profile in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, profile)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            continue
        instances = (nvml.c_nvmlGpuInstance_t * info.instanceCount)()
        count = ctypes.c_uint(info.instanceCount)
        nvml.nvmlDeviceGetGpuInstances(handle, info.id, instances, ctypes.byref(count))
        found.extend(instances[: count.value])
    return found


def set_mig_mode(uuid: str, *, enabled: bool) -> dict[str, Any]:
    """Ask for MIG mode on or off; ``pending`` says whether a reset is still needed."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    nvml.nvmlDeviceSetMigMode(handle, int(enabled))
    current, pending = nvml.nvmlDeviceGetMigMode(handle)
    return {"current": bool(current), "pending": bool(pending)}


def create_instance(uuid: str, nvml_profile: int, start: int, size: int) -> dict[str, Any]:
    """Create a GPU instance at this placement with one compute instance filling it."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    profile = nvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, nvml_profile)
    placement = nvml.c_nvmlGpuInstancePlacement_t(start, size)
    # The binding passes the placement on as it is, and the library wants its address.
    gi = nvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile.id, ctypes.byref(placement))
    return {"gi": nvml.nvmlGpuInstanceGetInfo(gi).id, **_fill(gi, nvml_profile)}


def complete_instance(uuid: str, gi: int, nvml_profile: int) -> dict[str, Any]:
    """Create the compute instance of a GPU instance that has none."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    return _fill(nvml.nvmlDeviceGetGpuInstanceById(handle, gi), nvml_profile)


def _fill(gi: Any, nvml_profile: int) -> dict[str, Any]:
    whole = _WHOLE_COMPUTE_INSTANCE[nvml_profile]
    shared = nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
    profile = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, whole, shared)
    ci = nvml.nvmlGpuInstanceCreateComputeInstance(gi, profile.id)
    return {"ci": nvml.nvmlComputeInstanceGetInfo(ci).id}


def destroy_instance(uuid: str, gi: int) -> dict[str, Any]:
    """Destroy a GPU instance and its compute instances."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    instance = nvml.nvmlDeviceGetGpuInstanceById(handle, gi)
    for profile in range(nvml.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(
                instance, profile, nvml.NVML_COMPUTE_INSTANCE_ENGINE_PROFILE_SHARED
            )
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_InvalidArgument):
            continue
        instances = (nvml.c_nvmlComputeInstance_t * info.instanceCount)()
        count = ctypes.c_uint(info.instanceCount)
        nvml.nvmlGpuInstanceGetComputeInstances(instance, info.id, instances, ctypes.byref(count))
        for compute in instances[: count.value]:
            nvml.nvmlComputeInstanceDestroy(compute)
    nvml.nvmlGpuInstanceDestroy(instance)
    return {}


def processes(uuid: str) -> list[dict[str, Any]]:
    """List compute processes of a GPU: pid, used memory in MiB, GPU instance or None."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    return [
        {
            "pid": process.pid,
            "used_mib": (process.usedGpuMemory or 0) >> 20,
            "gi": None if process.gpuInstanceId in (None, 0xFFFFFFFF) else process.gpuInstanceId,
        }
        for process in nvml.nvmlDeviceGetComputeRunningProcesses(handle)
    ]


def readings(uuid: str) -> dict[str, Any]:
    """Read what the metrics show of one GPU; a value the driver does not give is absent."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    sources: dict[str, Callable[[], float]] = {
        "memory_used_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used >> 20,
        "gpu_utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu,
        "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(
            handle, nvml.NVML_TEMPERATURE_GPU
        ),
        "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000,
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM),
    }
    found: dict[str, Any] = {}
    for name, read in sources.items():
        try:
            found[name] = read()
        except nvml.NVMLError:
            continue
    return found


def probe(uuid: str) -> dict[str, Any]:
    """Touch one GPU; raises NVMLError where it does not answer as a healthy one."""
    handle = nvml.nvmlDeviceGetHandleByUUID(uuid)
    nvml.nvmlDeviceGetMemoryInfo(handle)
    return {}
