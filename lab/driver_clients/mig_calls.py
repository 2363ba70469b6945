"""MIG through pynvml, in the few calls that the tests make of it."""

import ctypes

import pynvml as nvml

# slices of a GPU instance → the number of the profile that fills it with one compute instance
CI_NUMBER = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}


def profiles(gpu):
    """Return the profiles by identifier."""
    infos = {}
    for number in range(nvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, number, version=2)
        except nvml.NVMLError_NotSupported:
            continue
        infos[info.id] = info
    return infos


def placements(gpu, profile):
    """Return the possible placements of a profile, as start and size."""
    count = ctypes.c_uint(0)
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile, None, ctypes.byref(count))
    array = (nvml.c_nvmlGpuInstancePlacement_t * count.value)()
    nvml.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile, array, ctypes.byref(count))
    return [(placement.start, placement.size) for placement in array]


def create_at(gpu, profile, start, size):
    """Create a GPU instance at a place."""
    place = nvml.c_nvmlGpuInstancePlacement_t(start, size)
    return nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile, ctypes.byref(place))


def fill(instance, slices):
    """Create a compute instance over all slices of a GPU instance."""
    return nvml.nvmlGpuInstanceCreateComputeInstance(instance, CI_NUMBER[slices])


def mig_devices(gpu):
    """Return the MIG devices of a GPU."""
    devices = []
    for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            devices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index))
        except nvml.NVMLError_NotFound:
            break
    return devices


def switched_on(install, model="A100-SXM4-40GB", count=1, **options):
    """Install a driver and switch the first GPU to MIG; return both."""
    driver = install(model, count, **options)
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    nvml.nvmlDeviceSetMigMode(gpu, 1)
    assert nvml.nvmlDeviceGetMigMode(gpu) == [1, 1]
    return driver, gpu
