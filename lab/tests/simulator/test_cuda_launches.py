"""Launches: kernels that compute, every way to launch one, streams and events."""

import array
import ctypes as c

import pynvml as nvml

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import fails
from lab.driver_clients.driver_root import eventually
from lab.driver_clients.ptx_modules import ptx_module
from lab.driver_clients.vector_add import VECTOR_ADD, add_vectors


def test_adds_vectors(gpu):
    assert add_vectors(gpu, 50_000)


def test_multiplies_tiled_matrices(gpu):
    n = 64
    a = array.array("f", ((i * 7 + 3) % 11 - 5 for i in range(n * n)))
    b = array.array("f", ((i * 5 + 1) % 13 - 6 for i in range(n * n)))
    function = gpu.function(gpu.module(ptx_module("matrix_product")), "matrix_product")
    pointers = [gpu.upload(a.tobytes()), gpu.upload(b.tobytes()), gpu.allocate(4 * n * n)]
    arguments = [*(c.c_uint64(pointer) for pointer in pointers), c.c_int(n)]
    gpu.launch(function, [n // 16, n // 16], [16, 16], *arguments)
    result = array.array("f", gpu.download(pointers[2], 4 * n * n))
    for row in range(0, n, 9):
        for column in range(n):
            exact = sum(a[row * n + k] * b[k * n + column] for k in range(n))
            assert result[row * n + column] == exact


def test_refuses_wrong_launches(gpu):
    function = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    arguments = [c.c_uint64(0)] * 3 + [c.c_int(0)]
    for grid, block in (([0], [32]), ([1], [0]), ([1], [1025]), ([1, 65536], [1]), ([1], [64, 32])):
        with fails(codes.INVALID_VALUE):
            gpu.launch(function, grid, block, *arguments)
    with fails(codes.INVALID_VALUE):
        gpu.launch(function, [1], [1], *arguments, shared=1 << 20)
    with fails(codes.INVALID_HANDLE):
        gpu.launch(c.c_void_p(8), [1], [1], *arguments)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuLaunchKernel", function, *[c.c_uint(1)] * 6, c.c_uint(0), None, None, None)
    with fails(codes.NOT_FOUND):
        gpu.function(gpu.module(VECTOR_ADD), "other")
    gpu.launch(function, [1], [1], *arguments)


def test_supports_the_old_way_of_launching(gpu):
    function = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    a = gpu.upload(array.array("f", range(64)).tobytes())
    result = gpu.allocate(256)
    for at, pointer in enumerate((a, a, result)):
        gpu.call("cuParamSetv", function, at * 8, c.byref(c.c_uint64(pointer)), c.c_uint(8))
    gpu.call("cuParamSeti", function, 24, c.c_uint(64))
    gpu.call("cuParamSetSize", function, c.c_uint(28))
    gpu.call("cuFuncSetBlockShape", function, 32, 1, 1)
    gpu.call("cuLaunchGridAsync", function, 2, 1, None)
    sums = array.array("f", gpu.download(result, 256))
    assert sums == array.array("f", (2 * i for i in range(64)))


def test_reads_extra_parameters(gpu):
    function = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    a = gpu.upload(array.array("f", range(32)).tobytes())
    buffer = c.create_string_buffer(bytes(c.c_uint64(a)) * 3 + bytes(c.c_int(32)))
    size = c.c_size_t(28)
    extra = (c.c_void_p * 5)(1, c.addressof(buffer), 2, c.addressof(size), None)
    sizes = [c.c_uint(dimension) for dimension in (1, 1, 1, 32, 1, 1, 0)]
    gpu.call("cuLaunchKernel", function, *sizes, None, None, extra)
    assert array.array("f", gpu.download(a, 128))[31] == 62


def test_orders_streams_and_events(gpu):
    stream, begin, end = c.c_void_p(), c.c_void_p(), c.c_void_p()
    gpu.call("cuStreamCreate", c.byref(stream), c.c_uint(1))
    gpu.call("cuEventCreate", c.byref(begin), c.c_uint(0))
    gpu.call("cuEventCreate", c.byref(end), c.c_uint(0))
    gpu.call("cuEventRecord", begin, stream)
    assert add_vectors(gpu, 100)
    gpu.call("cuEventRecord", end, stream)
    gpu.call("cuStreamWaitEvent", stream, end, c.c_uint(0))
    gpu.call("cuEventSynchronize", end)
    elapsed = c.c_float()
    gpu.call("cuEventElapsedTime", c.byref(elapsed), begin, end)
    assert elapsed.value > 0
    for call, handle in (("cuEventDestroy_v2", begin), ("cuStreamDestroy_v2", stream)):
        gpu.call(call, handle)
        with fails(codes.INVALID_HANDLE):
            gpu.call(call, handle)


def test_reports_work_as_utilisation(install):
    driver = install()
    cuda = driver.cuda().init()
    cuda.context()
    driver.nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0
    length = 1_000_000
    function = cuda.function(cuda.module(VECTOR_ADD), "vector_add")
    pointer = c.c_uint64(cuda.allocate(4 * length))
    for _ in range(8):
        cuda.launch(
            function, [(length + 255) // 256], [256], pointer, pointer, pointer, c.c_int(length)
        )
    assert eventually(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu > 0, 1)
