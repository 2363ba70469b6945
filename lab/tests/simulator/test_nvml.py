"""What NVML reads, through pynvml, and that misuse is refused."""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pynvml as nvml
import pytest

from lab.cluster.flat_file import gpu_uuid
from lab.cluster.simulated_driver import SOURCE
from lab.driver_clients.driver_root import VERSION


def test_reports_the_identity_of_driver_and_gpus(install):
    library = install("A100-SXM4-40GB", 3).nvml()
    assert library.divvySimulated
    assert nvml.nvmlSystemGetDriverVersion() == VERSION
    assert nvml.nvmlSystemGetNVMLVersion() == f"12.{VERSION}"
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() == 12040
    assert nvml.nvmlDeviceGetCount() == 3
    for index in range(3):
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid = nvml.nvmlDeviceGetUUID(gpu)
        assert uuid == gpu_uuid("test", index)
        assert nvml.nvmlDeviceGetIndex(nvml.nvmlDeviceGetHandleByUUID(uuid)) == index
        assert nvml.nvmlDeviceGetName(gpu) == "NVIDIA A100-SXM4-40GB"
        assert nvml.nvmlDeviceGetMinorNumber(gpu) == index
        assert nvml.nvmlDeviceGetVbiosVersion(gpu) == "SIMULATED"
        assert nvml.nvmlDeviceGetCudaComputeCapability(gpu) == (8, 0)
        assert nvml.nvmlDeviceGetArchitecture(gpu) == nvml.NVML_DEVICE_ARCH_AMPERE
        assert nvml.nvmlDeviceGetBrand(gpu) == nvml.NVML_BRAND_NVIDIA
        assert len(nvml.nvmlDeviceGetSerial(gpu)) == 13
    assert len({nvml.nvmlDeviceGetUUID(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(3)}) == 3


def test_reports_pci_addresses(install):
    install("H100-SXM5-80GB", 2).nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    pci = nvml.nvmlDeviceGetPciInfo(gpu)
    assert (pci.busId, pci.busIdLegacy) == ("00000000:0F:00.0", "0000:0F:00.0")
    assert (pci.domain, pci.bus, pci.device) == (0, 15, 0)
    assert pci.pciDeviceId == 0x233010DE
    extended = nvml.nvmlPciInfoExt_v1_t(version=nvml.nvmlPciInfoExt_v1)
    nvml.nvmlDeviceGetPciInfoExt(gpu, ctypes.byref(extended))
    assert (extended.busId, extended.bus, extended.baseClass) == ("00000000:0F:00.0", 15, 3)
    for spelled in ("00000000:0F:00.0", "0000:0f:00.0", "0F:00.0"):
        same = nvml.nvmlDeviceGetHandleByPciBusId(spelled.encode())
        assert nvml.nvmlDeviceGetIndex(same) == 1


def test_reports_memory_power_and_clocks(install):
    install("A100-SXM4-40GB", 1).nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    first = nvml.nvmlDeviceGetMemoryInfo(gpu)
    assert first.total == 40960 << 20
    assert first.total == first.free + first.used
    second = nvml.nvmlDeviceGetMemoryInfo(gpu, version=nvml.nvmlMemory_v2)
    assert (second.used, second.reserved) == (0, 640 << 20)
    assert second.total == second.free + second.used + second.reserved
    assert nvml.nvmlDeviceGetBAR1MemoryInfo(gpu).bar1Total == 64 << 30
    assert nvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 0
    assert 20 < nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU) < 90
    assert nvml.nvmlDeviceGetTemperatureV(gpu, nvml.NVML_TEMPERATURE_GPU) == (
        nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU)
    )
    limit = nvml.nvmlDeviceGetEnforcedPowerLimit(gpu)
    assert 0 < nvml.nvmlDeviceGetPowerUsage(gpu) < limit == 400_000
    assert nvml.nvmlDeviceGetPowerManagementLimitConstraints(gpu) == [100_000, 400_000]
    assert nvml.nvmlDeviceGetMaxClockInfo(gpu, nvml.NVML_CLOCK_SM) == 1410
    assert 0 < nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) <= 1410
    assert nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) == 1215
    assert nvml.nvmlDeviceGetPerformanceState(gpu) == 0
    assert nvml.nvmlDeviceGetPersistenceMode(gpu) == 1
    assert nvml.nvmlDeviceGetEccMode(gpu) == [1, 1]
    assert nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0) == 0
    assert nvml.nvmlDeviceGetVirtualizationMode(gpu) == 0
    assert nvml.nvmlDeviceGetComputeRunningProcesses(gpu) == []
    assert nvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu) == []
    assert nvml.nvmlDeviceGetNumGpuCores(gpu) == 6912
    energy = nvml.nvmlDeviceGetTotalEnergyConsumption(gpu)
    assert nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) >= energy
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetFanSpeed(gpu)


@pytest.mark.usefixtures("administrator")
def test_reports_load_in_its_readings(install):
    driver = install()
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    idle = nvml.nvmlDeviceGetPowerUsage(gpu)
    driver.sim("load", "0", "75")
    assert nvml.nvmlDeviceGetUtilizationRates(gpu).gpu == 75
    assert nvml.nvmlDeviceGetTemperature(gpu, 0) == 60
    assert nvml.nvmlDeviceGetPowerUsage(gpu) > 2 * idle


def test_reports_the_topology(install):
    install("A100-SXM4-40GB", 4).nvml()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(4)]
    levels = [nvml.nvmlDeviceGetTopologyCommonAncestor(gpus[0], other) for other in gpus[1:]]
    assert levels == [10, 50, 50]
    with pytest.raises(nvml.NVMLError_NotSupported):  # what a GPU has in common with itself
        nvml.nvmlDeviceGetTopologyCommonAncestor(gpus[0], gpus[0])
    remotes = [nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpus[0], link).busId for link in range(12)]
    buses = [nvml.nvmlDeviceGetPciInfo(gpu).busId for gpu in gpus]
    assert sorted(remotes) == sorted(buses[1:] * 4)
    assert all(nvml.nvmlDeviceGetNvLinkState(gpus[0], link) for link in range(12))
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetNvLinkState(gpus[0], 12)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetNumaNodeId(gpus[0])
    nodes = [
        nvml.nvmlDeviceGetMemoryAffinity(gpu, 1, nvml.NVML_AFFINITY_SCOPE_NODE) for gpu in gpus
    ]
    assert [list(node) for node in nodes] == [[1], [1], [2], [2]]


@pytest.mark.usefixtures("administrator")
def test_reports_faults_of_clocks_lanes_and_links(install):
    driver = install("A100-SXM4-40GB", 2)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)

    def read():
        return (
            nvml.nvmlDeviceGetCurrentClocksEventReasons(gpu),
            nvml.nvmlDeviceGetCurrPcieLinkWidth(gpu),
            [nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, 0, kind) for kind in range(5)],
        )

    assert read() == (0x1, 16, [0] * 5)
    for fault in ("hot", "narrow", "link-error", "link-error"):
        driver.sim("fault", fault, "1")
    assert read() == (0x1 | 0x8 | 0x40, 8, [2, 0, 0, 0, 0])
    assert nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, 1, 0) == 0
    driver.sim("fault", "clear", "1")
    assert read() == (0x1, 16, [0] * 5)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetNvLinkErrorCounter(gpu, 0, 5)


@pytest.mark.usefixtures("administrator")
def test_tells_the_numa_node_of_a_gpus_memory(install):
    driver = install("GH200-96GB", 1)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    driver.sim("fault", "numa-node", "0", "9")
    assert nvml.nvmlDeviceGetNumaNodeId(gpu) == 9
    driver.sim("fault", "clear", "0")
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetNumaNodeId(gpu)


def test_tells_no_memory_of_a_gpu_without_its_own(install):
    driver = install("GB10", 1)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    for version in (None, nvml.nvmlMemory_v2):
        with pytest.raises(nvml.NVMLError_NotSupported):
            nvml.nvmlDeviceGetMemoryInfo(gpu, version)
    assert nvml.nvmlDeviceGetComputeRunningProcesses(gpu) == []
    assert "MemTotal:       127600640 kB" in (driver.root / "proc/meminfo").read_text()


@pytest.mark.usefixtures("administrator")
def test_asks_for_a_recovery_action_until_the_reset(install):
    driver = install("A100-SXM4-40GB", 2)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)

    def read():
        ids = [nvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, nvml.NVML_FI_DEV_ECC_CURRENT]
        action, other = nvml.nvmlDeviceGetFieldValues(gpu, ids)
        assert (action.nvmlReturn, other.nvmlReturn) == (
            nvml.NVML_SUCCESS,
            nvml.NVML_ERROR_NOT_SUPPORTED,
        )
        return action.value.uiVal

    assert read() == nvml.NVML_GPU_RECOVERY_ACTION_NONE
    driver.sim("fault", "recovery", "1", "4")
    assert read() == nvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET
    driver.sim("fault", "clear", "1")
    assert read() == nvml.NVML_GPU_RECOVERY_ACTION_NONE
    driver.sim("fault", "recovery", "1", "1")
    nvml.nvmlShutdown()
    driver.smi("--gpu-reset", "-i", "1")
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(1)
    assert read() == nvml.NVML_GPU_RECOVERY_ACTION_NONE


def test_reports_the_numa_node_on_the_bus(install):
    driver = install("A100-SXM4-40GB", 4)
    folder = driver.root / "sys/bus/pci/devices"
    numa_nodes = {path.parent.name: path.read_text() for path in folder.glob("*/numa_node")}
    assert numa_nodes == {
        "0000:07:00.0": "0\n", "0000:0f:00.0": "0\n", "0000:47:00.0": "1\n", "0000:4e:00.0": "1\n",
    }  # fmt: skip


def test_reports_what_a_gpu_is_on_the_bus(install):
    gpu = install("A100-SXM4-40GB").root / "sys/bus/pci/devices/0000:07:00.0"
    identity = {name: (gpu / name).read_text().strip() for name in ("vendor", "device", "class")}
    assert identity == {"vendor": "0x10de", "device": "0x20b0", "class": "0x030200"}
    assert len((gpu / "config").read_bytes()) == 256
    assert len((gpu / "resource").read_text().split()) == 3


def fabric(gpu, info, call):
    call(gpu, ctypes.byref(info))
    return info.state, info.status


@pytest.mark.usefixtures("administrator")
def test_reports_gpus_behind_switches_in_a_fabric(install):
    driver = install("H100-80GB-HBM3", 8)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(3)
    plain, versioned = nvml.c_nvmlGpuFabricInfo_t(), nvml.c_nvmlGpuFabricInfo_v2_t()
    assert fabric(gpu, plain, nvml.nvmlDeviceGetGpuFabricInfo) == (3, 0)
    assert fabric(gpu, versioned, nvml.nvmlDeviceGetGpuFabricInfoV) == (3, 0)
    driver.sim("fault", "no-fabric", "3")
    assert fabric(gpu, versioned, nvml.nvmlDeviceGetGpuFabricInfoV)[0] == 2
    shown = driver.smi("-q", "-i", "3")
    assert re.search(
        r"^    Fabric\n        State +: In Progress\n        Status +: N/A$", shown, re.M
    )
    driver.sim("fault", "clear", "3")
    assert fabric(gpu, plain, nvml.nvmlDeviceGetGpuFabricInfo) == (3, 0)
    versioned.version = 7
    with pytest.raises(nvml.NVMLError_ArgumentVersionMismatch):
        nvml.nvmlDeviceGetGpuFabricInfoV(gpu, ctypes.byref(versioned))


@pytest.mark.parametrize(("model", "count"), [("A100-SXM4-40GB", 8), ("H100-80GB-HBM3", 2)])
def test_reports_other_gpus_in_no_fabric(install, model, count):
    install(model, count).nvml()
    gpu, info = nvml.nvmlDeviceGetHandleByIndex(0), nvml.c_nvmlGpuFabricInfo_t()
    if model.startswith("A100"):
        with pytest.raises(nvml.NVMLError_NotSupported):
            nvml.nvmlDeviceGetGpuFabricInfo(gpu, ctypes.byref(info))
    else:
        assert fabric(gpu, info, nvml.nvmlDeviceGetGpuFabricInfo) == (0, 0)


def test_joins_eight_gpus_by_switches(install):
    install("H100-SXM5-80GB", 8).nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetNvLinkRemoteDeviceType(gpu, 17) == 2
    remote = nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, 0).busId
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByPciBusId(remote.encode())


def test_supports_a_model_without_links_and_mig(install):
    install("T4", 2).nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    for refused in (
        lambda: nvml.nvmlDeviceGetNvLinkState(gpu, 0),
        lambda: nvml.nvmlDeviceGetMigMode(gpu),
        lambda: nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0),
        lambda: nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, 0),
    ):
        with pytest.raises(nvml.NVMLError_NotSupported):
            refused()
    assert nvml.nvmlDeviceGetMaxMigDeviceCount(gpu) == 0


def test_shows_only_gpus_that_can_be_opened(install):
    driver = install("A100-SXM4-40GB", 4)
    (driver.root / "dev/nvidia0").unlink()
    (driver.root / "dev/nvidia2").unlink()
    driver.nvml()
    assert nvml.nvmlDeviceGetCount() == 2
    minors = [nvml.nvmlDeviceGetMinorNumber(nvml.nvmlDeviceGetHandleByIndex(i)) for i in range(2)]
    assert minors == [1, 3]
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID(gpu_uuid("test", 0))
    assert driver.smi("-L").count("GPU ") == 2


def test_finds_no_driver_without_the_control_node(install):
    driver = install()
    (driver.root / "dev/nvidiactl").unlink()
    with pytest.raises(nvml.NVMLError_DriverNotLoaded):
        driver.nvml()


def test_finds_no_driver_without_the_daemon(install):
    driver = install()
    driver.stop()
    with pytest.raises(nvml.NVMLError_DriverNotLoaded):
        driver.nvml()
    assert "couldn't communicate with the NVIDIA driver" in driver.smi(rc=9)


def test_refuses_misuse(install):
    library = install().nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    somewhere = ctypes.create_string_buffer(64)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetHandleByIndex(1)
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlDeviceGetHandleByUUID("GPU-none")
    with pytest.raises(nvml.NVMLError_FunctionNotFound):
        nvml.nvmlDeviceGetAccountingMode(gpu)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceGetTemperature(gpu, 7)
    assert library.nvmlDeviceGetName(somewhere, somewhere, 64) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert library.nvmlDeviceGetName(None, somewhere, 64) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert library.nvmlDeviceGetName(gpu, None, 64) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert library.nvmlDeviceGetName(gpu, somewhere, 8) == nvml.NVML_ERROR_INSUFFICIENT_SIZE
    assert library.nvmlDeviceGetMemoryInfo(gpu, None) == nvml.NVML_ERROR_INVALID_ARGUMENT
    wrong = nvml.c_nvmlMemory_v2_t(version=1)
    assert library.nvmlDeviceGetMemoryInfo_v2(gpu, ctypes.byref(wrong)) == (
        nvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH
    )
    assert library.nvmlEventSetFree(somewhere) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert library.nvmlGpuInstanceDestroy(somewhere) == nvml.NVML_ERROR_INVALID_ARGUMENT
    nvml.nvmlShutdown()
    for call in (nvml.nvmlDeviceGetCount, nvml.nvmlShutdown, lambda: nvml.nvmlDeviceGetName(gpu)):
        with pytest.raises(nvml.NVMLError_Uninitialized):
            call()
    nvml.nvmlInit()
    assert nvml.nvmlDeviceGetName(gpu)


def test_names_errors_as_pynvml_does(install):
    library = install().nvml()
    library.nvmlErrorString.restype = ctypes.c_char_p
    codes = [getattr(nvml, name) for name in dir(nvml) if name.startswith("NVML_ERROR_")]
    assert len(codes) > 25
    for code in codes:
        assert library.nvmlErrorString(code)
    assert library.nvmlErrorString(nvml.NVML_ERROR_NO_PERMISSION) == b"Insufficient Permissions"


def test_connects_a_forked_child_by_itself(install):
    driver = install()
    script = (
        "import ctypes, os, sys\n"
        f"n = ctypes.CDLL({str(driver.library('libnvidia-ml.so.1'))!r})\n"
        "count = ctypes.c_uint()\n"
        "assert n.nvmlInit_v2() == 0\n"
        "child = os.fork()\n"
        "assert n.nvmlDeviceGetCount_v2(ctypes.byref(count)) == 0 and count.value == 1\n"
        "if child: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    subprocess.run([sys.executable, "-S", "-c", script], check=True, timeout=20)


def test_shows_process_names_in_the_callers_view(install):
    install().nvml()
    assert "python" in nvml.nvmlSystemGetProcessName(os.getpid())
    with pytest.raises(nvml.NVMLError_NotFound):
        nvml.nvmlSystemGetProcessName(2**30)


def test_serves_sixteen_gpus(install):
    install("B200", 16).nvml()
    assert nvml.nvmlDeviceGetCount() == 16
    gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(16)]
    assert len({nvml.nvmlDeviceGetPciInfo(gpu).busId for gpu in gpus}) == 16


@pytest.mark.parametrize("count", range(2, 17))
def test_places_no_gpu_where_a_switch_is(install, count):
    install("H100-80GB-HBM3", count).nvml()
    gpus = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
    buses = [nvml.nvmlDeviceGetPciInfo(gpu).busId for gpu in gpus]
    assert len(set(buses)) == count
    behind = {
        (nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link).bus, remote)
        for gpu in gpus
        for link in range(18)
        if (remote := nvml.nvmlDeviceGetNvLinkRemotePciInfo(gpu, link).busId) not in buses
    }
    assert len(behind) == (6 if count > 4 else 0)
    assert all(int(remote.split(":")[1], 16) == bus for bus, remote in behind)


def test_answers_not_supported_for_what_gpus_lack(install):
    names = re.findall(
        r"^NOT_SUPPORTED\((\w+)\)$", (SOURCE / "nvml/not_supported.c").read_text(), re.M
    )
    assert len(set(names)) == len(names) > 80
    interface = Path(nvml.__file__).read_text()
    assert [name for name in names if f'"{name}"' not in interface] == []
    driver = install()
    library = ctypes.CDLL(str(driver.library("libnvidia-ml.so.1")))
    assert {getattr(library, name)() for name in names} == {nvml.NVML_ERROR_UNINITIALIZED}
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    value = ctypes.c_ulonglong(7)
    answers = {name: getattr(library, name)(gpu, ctypes.byref(value)) for name in names}
    assert {*answers.values()} == {nvml.NVML_ERROR_NOT_SUPPORTED}, answers
    assert value.value == 7
