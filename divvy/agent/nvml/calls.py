"""The NVML calls the agent makes; each returns plain JSON values.

Runs in the child process only (see ``divvy.agent.nvml.child``).
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pynvml as nvml

from divvy.agent.gpu.pci import pcie_root
from divvy.agent.gpu.system_memory import has_processors, system_memory_mib
from divvy.agent.nvml.mig_calls import HiddenDevice, handle, instances, mig_handles, mig_mode

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
# Drivers keep the samples of some seconds.
_UTILISATION_SECONDS = 10
_ALL = 100
# What the driver asks for to be done with a GPU (nvml.h: nvmlDeviceGpuRecoveryAction_t).
_RECOVERY_ACTIONS = {
    1: "a reset of the GPU",
    2: "a reboot of the node",
    3: "an end of its traffic with other GPUs",
    4: "a reset of the GPU once its pods have ended",
    5: "a recovery of its IMEX domain",
    6: "a reset of its bus",
    7: "a reboot of the system",
}


def load(library: str) -> None:
    """Load NVML from this absolute path and initialise it."""
    nvml.nvmlLib = ctypes.CDLL(library)
    nvml.nvmlInit()


def simulated() -> bool:
    """Return whether the loaded library is the simulated driver's."""
    return hasattr(nvml.nvmlLib, "divvySimulated")


def driver() -> dict[str, Any]:
    """Describe the driver, and how many GPUs it knows; opens none of them."""
    cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
    return {
        "driver_version": nvml.nvmlSystemGetDriverVersion(),
        "cuda_version": [cuda // 1000, cuda % 1000 // 10],
        "count": nvml.nvmlDeviceGetCount(),
        "simulated": simulated(),
    }


def describe(root: Path, *, bus_id: str = "", index: int = 0) -> dict[str, Any]:
    """Describe one GPU, named by its PCI address or, where that is not known yet, its index.

    A GPU that answers in part is described by what it told, with the reason as "error".
    """
    opened = handle(bus_id) if bus_id else nvml.nvmlDeviceGetHandleByIndex(index)
    gpu = {
        "index": nvml.nvmlDeviceGetIndex(opened),
        "uuid": nvml.nvmlDeviceGetUUID(opened),
        "pci_bus_id": (address := nvml.nvmlDeviceGetPciInfo(opened).busId),
        # What this machine has at the address of a simulated GPU is another device.
        "pcie_root": pcie_root(address, (root,) if simulated() else (root, Path("/"))),
    }
    try:
        gpu |= _facts(opened, root)
    except nvml.NVMLError as error:
        gpu["error"] = {"code": error.value, "text": str(error)}
    except HiddenDevice as hidden:
        gpu["error"] = {"code": None, "text": str(hidden)}
    return gpu


def _facts(handle: Any, root: Path) -> dict[str, Any]:
    minor = nvml.nvmlDeviceGetMinorNumber(handle)
    current, pending = mig_mode(handle)
    return {
        "product": nvml.nvmlDeviceGetName(handle),
        **_memory(handle, root),
        "minor": minor,
        "compute_capability": list(nvml.nvmlDeviceGetCudaComputeCapability(handle)),
        "numa": _numa(handle),
        "mig_mode": current,
        "mig_pending": pending,
        "instances": instances(handle, minor, root) if current else [],
        "brand": _brand(handle),
        "recovery": _recovery(handle),
    }


def _memory(handle: Any, root: Path) -> dict[str, Any]:
    """Return the memory, and what keeps limits of it from holding.

    GB10 has none of its own, and its driver tells none: it uses the node's. On GH200, GB200 and
    GB300 it is a NUMA node, unless the driver is loaded with NVreg_CoherentGPUMemoryMode=driver.
    """
    # The machine of a simulated GPU has another size.
    node_root = root if simulated() else Path("/")
    try:
        total_mib = nvml.nvmlDeviceGetMemoryInfo(handle).total >> 20
    except nvml.NVMLError_NotSupported:
        total_mib = system_memory_mib(node_root)
        return {"memory_mib": total_mib, "memory_problem": "it uses the node's system memory"}
    try:
        node = nvml.nvmlDeviceGetNumaNodeId(handle)
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return {"memory_mib": total_mib}
    except nvml.NVMLError as error:
        problem = f"the driver does not tell whether it is a NUMA node of the system ({error})"
        return {"memory_mib": total_mib, "memory_problem": problem}
    if node < 0 or has_processors(node_root, node):
        return {"memory_mib": total_mib}
    return {
        "memory_mib": total_mib,
        "memory_problem": f"it is NUMA node {node} of the system "
        "(the driver needs NVreg_CoherentGPUMemoryMode=driver)",
    }


def _brand(handle: Any) -> str:
    try:
        return _BRANDS.get(nvml.nvmlDeviceGetBrand(handle), "unknown")
    except nvml.NVMLError:
        return "unknown"


def _recovery(handle: Any) -> str:
    """Return which action the driver asks for, "" for none or where it does not tell."""
    try:
        (field,) = nvml.nvmlDeviceGetFieldValues(handle, [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    except nvml.NVMLError:
        return ""
    action = int(field.value.uiVal)
    if field.nvmlReturn != nvml.NVML_SUCCESS or action == nvml.NVML_GPU_RECOVERY_ACTION_NONE:
        return ""
    return _RECOVERY_ACTIONS.get(action, f"action {action} of NVML")


def _numa(handle: Any) -> int | None:
    """Return the NUMA node nearest to a GPU, None unless there is exactly one.

    nvmlDeviceGetNumaNodeId is another thing: it answers for GPUs that are nodes themselves.
    """
    try:
        (mask,) = nvml.nvmlDeviceGetMemoryAffinity(handle, 1, nvml.NVML_AFFINITY_SCOPE_NODE)
    except nvml.NVMLError:
        return None
    return int(mask).bit_length() - 1 if int(mask).bit_count() == 1 else None


def links(bus_ids: list[str]) -> list[tuple[str, str, int]]:
    """Score every pair of GPUs by how close they are: (PCI address, PCI address, score)."""
    handles = [(bus_id, handle(bus_id)) for bus_id in bus_ids]
    nvlinks: dict[frozenset[str], int] = {}
    for bus_id, opened in handles:
        for link in range(nvml.NVML_NVLINK_MAX_LINKS):
            try:
                if not nvml.nvmlDeviceGetNvLinkState(opened, link):
                    continue
                remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(opened, link).busId
            except nvml.NVMLError:
                break
            if remote in bus_ids:
                pair = frozenset((bus_id, remote))
                nvlinks[pair] = nvlinks.get(pair, 0) + 1
    scores = []
    for position, (gpu, opened) in enumerate(handles):
        for other, other_handle in handles[position + 1 :]:
            try:
                level = nvml.nvmlDeviceGetTopologyCommonAncestor(opened, other_handle)
            except nvml.NVMLError:
                level = nvml.NVML_TOPOLOGY_SYSTEM
            # Each end counts its own side of a link.
            pairs = nvlinks.get(frozenset((gpu, other)), 0) // 2
            scores.append((gpu, other, _ANCESTOR_SCORE.get(level, 10) + _NVLINK_SCORE * pairs))
    return scores


def processes(bus_id: str) -> list[dict[str, Any]]:
    """List the processes of a GPU: pid, used memory in MiB or None, GPU instance or None.

    Those with a compute context, those with a graphics context (Vulkan, OpenGL) and the clients of
    MPS: a process that stands in several lists does so with all its memory, and is returned once.
    Its memory is None where no list tells it.
    """
    gpu = handle(bus_id)
    used: dict[tuple[int, int | None], int | None] = {}
    for listed in (
        nvml.nvmlDeviceGetComputeRunningProcesses(gpu),
        nvml.nvmlDeviceGetGraphicsRunningProcesses(gpu),
        _clients_of_mps(gpu),
    ):
        for process in listed:
            gi = None if process.gpuInstanceId in (None, 0xFFFFFFFF) else process.gpuInstanceId
            key = (process.pid, gi)
            figures = (used.get(key), _mib(process.usedGpuMemory))
            used[key] = max((mib for mib in figures if mib is not None), default=None)
    return [{"pid": pid, "used_mib": mib, "gi": gi} for (pid, gi), mib in used.items()]


def _mib(size: int | None) -> int | None:
    """Return bytes as MiB; None, which NVML's binding has for NVML_VALUE_NOT_AVAILABLE, stays."""
    return None if size is None else size >> 20


def _clients_of_mps(gpu: Any) -> list[Any]:
    try:
        return list(nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu))
    except (nvml.NVMLError_FunctionNotFound, nvml.NVMLError_NotSupported):
        return []


def utilisation(bus_id: str) -> list[dict[str, int]] | None:
    """List how much of a GPU's time each process took lately: pid, per cent.

    The newest sample of each; None if the driver does not count it, as in MIG mode. Drivers have
    been seen to return entries of no process, with figures beyond 100.
    """
    since = int((time.time() - _UTILISATION_SECONDS) * 1e6)
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle(bus_id), since)
    except nvml.NVMLError_NotFound:
        return []
    except nvml.NVMLError:
        return None
    newest = {
        sample.pid: sample.smUtil
        for sample in sorted(samples, key=lambda sample: sample.timeStamp)
        if sample.pid and sample.timeStamp > since and sample.smUtil <= _ALL
    }
    return [{"pid": pid, "percent": percent} for pid, percent in newest.items()]


def readings(bus_id: str) -> dict[str, dict[str, float]]:
    """Read what the metrics show of a GPU and its MIG devices, by UUID.

    A value that the driver does not give is absent.
    """
    gpu = handle(bus_id)
    by_uuid = {nvml.nvmlDeviceGetUUID(gpu): _readings(gpu)}
    if mig_mode(gpu)[0]:
        for mig in mig_handles(gpu):
            by_uuid[nvml.nvmlDeviceGetUUID(mig)] = _readings(mig)
    return by_uuid


def _readings(device: Any) -> dict[str, float]:
    sources: dict[str, Callable[[], float]] = {
        "memory_used_mib": lambda: nvml.nvmlDeviceGetMemoryInfo(device).used >> 20,
        "gpu_utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(device).gpu,
        "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(
            device, nvml.NVML_TEMPERATURE_GPU
        ),
        "power_watts": lambda: nvml.nvmlDeviceGetPowerUsage(device) / 1000,
        "sm_clock_mhz": lambda: nvml.nvmlDeviceGetClockInfo(device, nvml.NVML_CLOCK_SM),
    }
    figures: dict[str, float] = {}
    for name, read in sources.items():
        try:
            figures[name] = read()
        except nvml.NVMLError:
            continue
    return figures
