"""How a program finds libcuda's functions by name, and what the errors are called."""

import ctypes as c

import pytest

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda


def test_finds_entry_points_by_name(gpu):
    pointer, status = c.c_void_p(), c.c_int()
    get = (
        "cuGetProcAddress_v2",
        b"cuMemAlloc",
        c.byref(pointer),
        12000,
        c.c_uint64(0),
        c.byref(status),
    )
    gpu.call(*get)
    assert (pointer.value, status.value) == (address(gpu, "cuMemAlloc_v2"), 0)
    gpu.call("cuGetProcAddress", b"cuCtxCreate", c.byref(pointer), 13000, c.c_uint64(0))
    assert pointer.value == address(gpu, "cuCtxCreate_v4")
    gpu.call("cuGetProcAddress", b"cuCtxCreate", c.byref(pointer), 12000, c.c_uint64(0))
    assert pointer.value == address(gpu, "cuCtxCreate_v2")
    assert gpu.code("cuGetProcAddress", b"cuNothing", c.byref(pointer), 12000, c.c_uint64(0)) == 500
    assert pointer.value is None
    assert gpu.code("cuGetExportTable", c.byref(pointer), b"0" * 16) == codes.NOT_FOUND
    text = c.c_char_p()
    gpu.call("cuGetErrorName", 700, c.byref(text))
    assert text.value == b"CUDA_ERROR_ILLEGAL_ADDRESS"
    gpu.call("cuGetErrorString", 2, c.byref(text))
    assert text.value == b"out of memory"
    assert gpu.code("cuGetErrorName", 12345, c.byref(text)) == codes.INVALID_VALUE


def address(cuda: Cuda, name: str) -> int | None:
    """Return where the loader has put a function."""
    return c.cast(getattr(cuda.library, name), c.c_void_p).value


# Of each kind of call that is not simulated, one that loaders of programs look up: drjit, taichi.
REFUSED = ["cuTexObjectGetResourceDesc", "cuSurfObjectCreate", "cuGraphicsUnmapResources"]
REFUSED += ["cuExternalMemoryGetMappedBuffer", "cuImportExternalSemaphore", "cuGreenCtxCreate"]


@pytest.mark.parametrize("name", REFUSED)
def test_exports_calls_that_are_not_supported(gpu, name):
    assert gpu.code(name) == codes.NOT_SUPPORTED


@pytest.mark.parametrize(
    ("name", "version", "form"),
    [
        ("cuStreamGetCaptureInfo", 10010, ""),
        ("cuStreamGetCaptureInfo", 12000, "_v2"),
        ("cuStreamGetCaptureInfo", 12030, "_v3"),
        ("cuStreamUpdateCaptureDependencies", 12000, ""),
        ("cuStreamUpdateCaptureDependencies", 12030, "_v2"),
        ("cuStreamWaitValue32", 12000, "_v2"),
        ("cuGraphInstantiate", 11000, "_v2"),
        ("cuGraphInstantiate", 12000, "WithFlags"),
    ],
)
def test_finds_the_form_of_a_call_by_version(gpu, name, version, form):
    pointer = c.c_void_p()
    gpu.call("cuGetProcAddress", name.encode(), c.byref(pointer), version, c.c_uint64(0))
    assert pointer.value == address(gpu, name + form)
