"""Events and faults: XIDs, lost GPUs, ECC errors, slow calls, another driver."""

import time

import pynvml as nvml
import pytest

from lab.driver_clients.driver_root import OTHER_VERSION, VERSION

pytestmark = pytest.mark.usefixtures("administrator")
XID = nvml.nvmlEventTypeXidCriticalError
ECC = nvml.nvmlEventTypeDoubleBitEccError


def watching(types=XID, count=2):
    """Return GPUs and an event set that watches them."""
    gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
    events = nvml.nvmlEventSetCreate()
    for gpu in gpus:
        assert nvml.nvmlDeviceGetSupportedEventTypes(gpu) & types == types
        nvml.nvmlDeviceRegisterEvents(gpu, types, events)
    return gpus, events


def test_delivers_an_xid(install):
    driver = install(count=2)
    driver.nvml()
    gpus, events = watching()
    with pytest.raises(nvml.NVMLError_Timeout):
        nvml.nvmlEventSetWait(events, 10)
    driver.sim("fault", "xid", "1", "79")
    event = nvml.nvmlEventSetWait(events, 2000)
    assert (event.eventType, event.eventData) == (XID, 79)
    assert nvml.nvmlDeviceGetUUID(event.device) == nvml.nvmlDeviceGetUUID(gpus[1])
    assert (event.gpuInstanceId, event.computeInstanceId) == (0xFFFFFFFF, 0xFFFFFFFF)
    driver.sim("fault", "xid", "0", "31", "3", "0")
    event = nvml.nvmlEventSetWait(events, 2000)
    assert (event.eventData, event.gpuInstanceId, event.computeInstanceId) == (31, 3, 0)
    nvml.nvmlEventSetFree(events)


def test_delivers_an_xid_to_every_watcher(install):
    driver = install(count=1)
    driver.nvml()
    sets = [watching(count=1)[1] for _ in range(3)]
    for number in (31, 48):
        driver.sim("fault", "xid", "0", str(number))
    for events in sets:
        assert [nvml.nvmlEventSetWait(events, 2000).eventData for _ in range(2)] == [31, 48]
        with pytest.raises(nvml.NVMLError_Timeout):
            nvml.nvmlEventSetWait(events, 1)


def test_keeps_events_from_before_a_second_registration(install):
    driver = install(count=2)
    driver.nvml()
    _, events = watching(count=1)
    driver.sim("fault", "xid", "0", "63")
    nvml.nvmlDeviceRegisterEvents(nvml.nvmlDeviceGetHandleByIndex(1), XID, events)
    assert nvml.nvmlEventSetWait(events, 2000).eventData == 63


def test_refuses_unknown_event_types(install):
    install().nvml()
    events = nvml.nvmlEventSetCreate()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceRegisterEvents(gpu, nvml.nvmlEventTypeClock, events)
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceRegisterEvents(gpu, 1 << 5, events)
    with pytest.raises(nvml.NVMLError_InvalidArgument):
        nvml.nvmlDeviceRegisterEvents(gpu, 1 << 40, events)


def test_counts_and_reports_ecc_errors(install):
    driver = install(count=1)
    driver.nvml()
    (gpu,), events = watching(XID | ECC, 1)
    driver.sim("fault", "ecc-corrected", "0")
    driver.sim("fault", "ecc", "0")
    assert nvml.nvmlEventSetWait(events, 2000).eventType == ECC
    assert nvml.nvmlEventSetWait(events, 2000).eventData == 48
    assert nvml.nvmlDeviceGetTotalEccErrors(gpu, 0, 0) == 1
    assert nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0) == 1
    assert "Volatile Uncorr. ECC" in driver.smi()
    driver.sim("fault", "clear", "0")
    assert nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 0) == 0
    assert nvml.nvmlDeviceGetTotalEccErrors(gpu, 1, 1) == 1


def test_remaps_a_row_after_an_uncorrectable_error_and_a_reset(install):
    driver = install("A100-SXM4-40GB", 1)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetRemappedRows(gpu) == (0, 0, 0, 0)
    driver.sim("fault", "ecc", "0")
    assert nvml.nvmlDeviceGetRemappedRows(gpu) == (0, 1, 1, 0)
    driver.sim("fault", "clear", "0")
    assert nvml.nvmlDeviceGetRemappedRows(gpu) == (0, 1, 0, 0)
    for call in (lambda: nvml.nvmlDeviceGetRetiredPages(gpu, 1),
                 lambda: nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu)):  # fmt: skip
        with pytest.raises(nvml.NVMLError_NotSupported):
            call()


def test_retires_a_page_before_ampere(install):
    driver = install("T4", 1)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetRetiredPages(gpu, 1) == []
    driver.sim("fault", "ecc", "0")
    assert len(nvml.nvmlDeviceGetRetiredPages(gpu, 1)) == 1
    assert nvml.nvmlDeviceGetRetiredPages(gpu, 0) == []
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) == 1
    driver.sim("fault", "clear", "0")
    assert nvml.nvmlDeviceGetRetiredPagesPendingStatus(gpu) == 0
    with pytest.raises(nvml.NVMLError_NotSupported):
        nvml.nvmlDeviceGetRemappedRows(gpu)


def test_answers_nothing_else_for_a_lost_gpu(install):
    driver = install(count=2)
    driver.nvml()
    (lost, whole), events = watching()
    driver.sim("fault", "lost", "0")
    assert nvml.nvmlEventSetWait(events, 2000).eventData == 79
    for call in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetMemoryInfo, nvml.nvmlDeviceGetMigMode):
        with pytest.raises(nvml.NVMLError_GpuIsLost):
            call(lost)
    with pytest.raises(nvml.NVMLError_GpuIsLost):
        nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetCount() == 2
    assert nvml.nvmlDeviceGetMemoryInfo(whole).total
    assert "GPU is lost" in driver.smi()
    driver.sim("fault", "clear", "0")
    assert nvml.nvmlDeviceGetUUID(lost)


def test_keeps_only_callers_of_a_slow_gpu_waiting(install):
    driver = install(count=2)
    driver.nvml()
    slow, quick = (nvml.nvmlDeviceGetHandleByIndex(i) for i in range(2))
    driver.sim("fault", "slow", "0", "300")
    begin = time.monotonic()
    nvml.nvmlDeviceGetTemperature(quick, 0)
    between = time.monotonic()
    nvml.nvmlDeviceGetTemperature(slow, 0)
    assert time.monotonic() - between >= 0.3
    assert between - begin < 0.25
    driver.sim("fault", "clear", "all")


def test_refuses_old_clients_after_a_driver_change(install):
    driver = install()
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    holder = driver.hold(100)
    assert holder.stdout.readline() == "0\n"
    assert driver.used_mib() == [100]
    driver.sim("driver", OTHER_VERSION)
    assert OTHER_VERSION in (driver.root / "proc/driver/nvidia/version").read_text()
    for call in (nvml.nvmlDeviceGetUUID, nvml.nvmlDeviceGetMemoryInfo):
        with pytest.raises(nvml.NVMLError_LibRmVersionMismatch):
            call(gpu)
    nvml.nvmlShutdown()
    with pytest.raises(nvml.NVMLError_LibRmVersionMismatch):
        nvml.nvmlInit()
    holder.stdin.write("init\n")
    holder.stdin.flush()
    assert holder.stdout.readline() == "803\n"
    assert driver.used_mib() == [0]
    driver.nvml()
    assert nvml.nvmlSystemGetDriverVersion() == OTHER_VERSION
    assert nvml.nvmlSystemGetCudaDriverVersion_v2() == 12080
    assert f"Driver Version: {OTHER_VERSION}" in driver.smi()
    assert "no such GPU or driver version" in driver.sim("driver", "1.2.3", rc=1)
    assert "out of range" in driver.sim("driver", "../../etc", rc=1)
    driver.sim("driver", VERSION)


def test_reports_what_is_wrong_by_divvy_sim(install):
    driver = install()
    assert driver.sim("show").startswith(f"simulated driver {VERSION}\ngpu 0 GPU-")
    assert "usage:" in driver.sim("fault", "xid", "0", rc=2)
    assert "no such GPU" in driver.sim("fault", "lost", "7", rc=1)
    assert "out of range" in driver.sim("load", "0", "101", rc=1)
    driver.stop()
    assert "no divvy-simd answers" in driver.sim("show", rc=1)


def test_holds_up_only_the_callers_of_a_hanging_gpu(install):
    driver = install("A100-SXM4-40GB", count=3)
    driver.sim("fault", "slow", "1", "3000")
    driver.nvml()
    began = time.monotonic()
    assert nvml.nvmlDeviceGetCount() == 3
    others = [nvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 2)]
    for gpu in others:
        nvml.nvmlDeviceGetMemoryInfo(gpu)
    assert time.monotonic() - began < 2
    nvml.nvmlDeviceGetHandleByIndex(1)
    assert time.monotonic() - began >= 3


def test_answers_with_the_code_it_was_told_to(install):
    driver = install("A100-SXM4-40GB", count=2)
    driver.sim("fault", "code", "1", "16")
    driver.nvml()
    nvml.nvmlDeviceGetMemoryInfo(nvml.nvmlDeviceGetHandleByIndex(0))
    with pytest.raises(nvml.NVMLError) as refusal:
        nvml.nvmlDeviceGetHandleByIndex(1)
    assert refusal.value.value == 16
    driver.sim("fault", "clear", "1")
    nvml.nvmlDeviceGetHandleByIndex(1)
