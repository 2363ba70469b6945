"""The GPU's memory: the calls, and that all processes share it."""

import ctypes as c

import pynvml as nvml

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda, fails
from lab.driver_clients.driver_root import eventually


def test_allocates_fills_copies_and_frees_memory(gpu):
    pointer = gpu.allocate(4096)
    gpu.call("cuMemsetD32_v2", c.c_uint64(pointer), 0x01020304, c.c_size_t(1024))
    gpu.call("cuMemsetD16_v2", c.c_uint64(pointer + 2), 0xABCD, c.c_size_t(1))
    gpu.call("cuMemsetD8_v2", c.c_uint64(pointer + 7), 0xEE, c.c_size_t(1))
    assert gpu.download(pointer, 8).hex() == "0403cdab040302ee"
    other = gpu.allocate(4096)
    gpu.call("cuMemcpyDtoD_v2", c.c_uint64(other), c.c_uint64(pointer), c.c_size_t(4096))
    assert gpu.download(other, 4096) == gpu.download(pointer, 4096)
    begin, size = c.c_uint64(), c.c_size_t()
    gpu.call("cuMemGetAddressRange_v2", c.byref(begin), c.byref(size), c.c_uint64(other + 99))
    assert (begin.value, size.value) == (other, 4096)
    for call in (
        lambda: gpu.download(pointer, 4097),
        lambda: gpu.download(pointer + 4096, 1),
        lambda: gpu.call("cuMemsetD32_v2", c.c_uint64(pointer + 1), 0, c.c_size_t(1)),
        lambda: gpu.free(pointer + 8),
        lambda: gpu.allocate(0),
        lambda: gpu.call("cuMemAlloc_v2", None, c.c_size_t(8)),
    ):
        with fails(codes.INVALID_VALUE):
            call()
    gpu.free(pointer)
    with fails(codes.INVALID_VALUE):
        gpu.free(pointer)
    host = c.c_void_p()
    gpu.call("cuMemAllocHost_v2", c.byref(host), c.c_size_t(64))
    c.memset(host, 7, 64)
    gpu.call("cuMemcpyHtoDAsync_v2", c.c_uint64(other), host, c.c_size_t(64), None)
    assert gpu.download(other, 64) == b"\x07" * 64
    gpu.call("cuMemFreeHost", host)


def test_fills_rows_and_leaves_the_pitch_between_them(gpu):
    pointer = gpu.upload(bytes(64))
    rows = (c.c_uint64(pointer + 2), c.c_size_t(16), 0x0201, c.c_size_t(3), c.c_size_t(2))
    gpu.call("cuMemsetD2D16_v2", *rows)
    row = bytes(2) + b"\1\2" * 3 + bytes(8)
    assert gpu.download(pointer, 64) == row * 2 + bytes(32)
    outside = (c.c_uint64(pointer), c.c_size_t(16), 1, c.c_size_t(4), c.c_size_t(5))
    for wrong in (outside, (c.c_uint64(pointer), c.c_size_t(4), 1, c.c_size_t(3), c.c_size_t(2))):
        with fails(codes.INVALID_VALUE):
            gpu.call("cuMemsetD2D32Async", *wrong, None)


def attributes(gpu: Cuda, pointer: int, *which: int) -> list[int]:
    """Ask for attributes of a pointer, all at once."""
    values = [c.c_uint64(77) for _ in which]
    numbers = (c.c_int * len(which))(*which)
    places = (c.c_void_p * len(which))(*(c.addressof(value) for value in values))
    count = c.c_uint(len(which))
    gpu.call("cuPointerGetAttributes", count, numbers, places, c.c_uint64(pointer))
    sizes = {2: 4, 8: 1, 9: 4}
    return [v.value & (1 << 8 * sizes.get(w, 8)) - 1 for v, w in zip(values, which, strict=True)]


def test_reports_attributes_of_pointers(gpu):
    context, type_, device, host, managed, ordinal, start, size = 1, 2, 3, 4, 8, 9, 11, 12
    pointer, current, pinned = gpu.allocate(4096), c.c_void_p(), c.c_void_p()
    gpu.call("cuCtxGetCurrent", c.byref(current))
    inside = pointer + 100
    asked = (context, type_, device, managed, ordinal, start, size)
    expected = [current.value, 2, inside, 0, 0, pointer, 4096]
    assert attributes(gpu, inside, *asked) == expected
    gpu.call("cuMemHostAlloc", c.byref(pinned), c.c_size_t(64), c.c_uint(0))
    address = pinned.value or 0
    assert attributes(gpu, address, type_, host) == [1, address]
    # Of what the driver does not know, nothing is said and nothing fails.
    assert attributes(gpu, 4096, context, type_, device) == [0, 0, 0]
    value = c.c_uint64()
    assert attributes(gpu, pointer, host) == [0]
    for wrong in (4096, pointer):  # unknown; and device memory has no address on the host
        with fails(codes.INVALID_VALUE):
            gpu.call("cuPointerGetAttribute", c.byref(value), host, c.c_uint64(wrong))
    with fails(codes.NOT_SUPPORTED):  # tokens for GPUDirect
        attributes(gpu, pointer, 5)
    with fails(codes.INVALID_VALUE):
        attributes(gpu, pointer, 99)


def test_reports_free_or_total_memory_alone(gpu):
    free, total = gpu.memory()
    value = c.c_size_t()
    gpu.call("cuMemGetInfo_v2", None, c.byref(value))
    assert value.value == total
    gpu.call("cuMemGetInfo_v2", c.byref(value), None)
    assert value.value == free


def test_refuses_memory_to_two_processes_over_the_limit(install):
    driver = install("T4", 1)
    cuda = driver.cuda().init()
    cuda.context()
    free, total = cuda.memory()
    assert total == 16384 << 20 or free < total
    neighbour = driver.hold(9000)
    assert neighbour.stdout.readline() == "0\n"
    assert cuda.memory()[0] == free - (9000 << 20)
    with fails(codes.OUT_OF_MEMORY):
        cuda.allocate(9000 << 20)
    pointer = cuda.allocate(5000 << 20)
    assert sorted(driver.used_mib()) == [14000]
    neighbour.stdin.write("free\n")
    neighbour.stdin.flush()
    assert neighbour.stdout.readline() == "0\n"
    second = cuda.allocate(9000 << 20)
    cuda.free(pointer)
    cuda.free(second)
    assert cuda.memory()[0] == free
    neighbour.kill()


def test_leaves_nothing_of_a_killed_process(install):
    driver = install()
    holder = driver.hold(1234)
    assert holder.stdout.readline() == "0\n"
    assert driver.used_mib() == [1234]
    driver.nvml()
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0))
    assert (process.pid, process.usedGpuMemory) == (holder.pid, 1234 << 20)
    holder.kill()
    assert eventually(lambda: driver.used_mib() == [0])
