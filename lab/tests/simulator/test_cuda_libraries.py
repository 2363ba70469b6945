"""Libraries and kernels: code loaded once for all contexts; and how many blocks of it fit."""

import array
import ctypes as c

import pytest

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda, CudaError, fails
from lab.driver_clients.vector_add import VECTOR_ADD

TWO = (
    ".version 7.0\n.target sm_75\n.address_size 64\n.global .b32 seen = 5;\n"
    ".visible .entry count(.param .u32 by, .param .u64 out)\n{\n"
    ".reg .b32 %r<4>;\n.reg .b64 %rd<3>;\n"
    "ld.param.u32 %r1, [by];\nld.param.u64 %rd1, [out];\nmov.u64 %rd2, seen;\n"
    "atom.global.add.u32 %r2, [%rd2], %r1;\nst.global.u32 [%rd1], %r2;\nret;\n}\n"
    ".visible .entry shares()\n.maxntid 256\n{\n.shared .b8 own[16384];\n.reg .b32 %r<2>;\n"
    "mov.u32 %r1, own;\nret;\n}\n"
)


def load(gpu: Cuda, text: str = TWO) -> c.c_void_p:
    """Load a library."""
    library = c.c_void_p()
    none = (None, None, 0)
    gpu.call("cuLibraryLoadData", c.byref(library), text.encode() + b"\0", *none, *none)
    return library


def kernel(gpu: Cuda, library: c.c_void_p, name: bytes) -> c.c_void_p:
    """Find a kernel of a library."""
    handle = c.c_void_p()
    gpu.call("cuLibraryGetKernel", c.byref(handle), library, name)
    return handle


def number(gpu: Cuda, name: str, *arguments: object) -> int:
    """Return what a call writes to its first argument."""
    value = c.c_int()
    gpu.call(name, c.byref(value), *arguments)
    return value.value


def word(gpu: Cuda, pointer: int) -> int:
    """Read a word of 32 bits."""
    return array.array("I", gpu.download(pointer, 4))[0]


def test_launches_a_kernel_in_any_context_with_its_own_variables(gpu):
    library = load(gpu)
    count = kernel(gpu, library, b"count")
    out = gpu.allocate(4)
    assert [launched(gpu, count, out) for _ in range(3)] == [5, 7, 9]
    gpu.context()
    assert launched(gpu, count, gpu.allocate(4)) == 5
    pointer, size = c.c_uint64(), c.c_size_t()
    gpu.call("cuLibraryGetGlobal", c.byref(pointer), c.byref(size), library, b"seen")
    assert (word(gpu, pointer.value), size.value) == (7, 4)


def launched(gpu: Cuda, kernel: c.c_void_p, out: int) -> int:
    """Launch `count` by the kernel itself and return what it found."""
    gpu.launch(kernel, [1], [1], c.c_uint32(2), c.c_uint64(out))
    return word(gpu, out)


def test_returns_the_function_of_the_librarys_module_for_a_kernel(gpu):
    library = load(gpu)
    module, function, same = c.c_void_p(), c.c_void_p(), c.c_void_p()
    gpu.call("cuLibraryGetModule", c.byref(module), library)
    gpu.call("cuKernelGetFunction", c.byref(function), kernel(gpu, library, b"count"))
    gpu.call("cuModuleGetFunction", c.byref(same), module, b"count")
    assert function.value == same.value
    with fails(800):
        gpu.call("cuModuleUnload", module)
    gpu.call("cuLibraryUnload", library)
    out = gpu.allocate(4)
    with fails(codes.INVALID_HANDLE):
        gpu.launch(function, [1], [1], c.c_uint32(2), c.c_uint64(out))


def test_describes_a_library_and_its_kernels(gpu):
    library = load(gpu)
    count, shares = (kernel(gpu, library, name) for name in (b"count", b"shares"))
    assert number(gpu, "cuLibraryGetKernelCount", library) == 2
    kernels = (c.c_void_p * 2)()
    gpu.call("cuLibraryEnumerateKernels", kernels, 2, library)
    assert set(kernels) == {count.value, shares.value}
    owner, name = c.c_void_p(), c.c_char_p()
    gpu.call("cuKernelGetLibrary", c.byref(owner), count)
    assert owner.value == library.value
    gpu.call("cuKernelGetName", c.byref(name), shares)
    assert name.value == b"shares"
    offset, size = c.c_size_t(), c.c_size_t()
    gpu.call("cuKernelGetParamInfo", count, c.c_size_t(1), c.byref(offset), c.byref(size))
    assert (offset.value, size.value) == (8, 8)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuKernelGetParamInfo", count, c.c_size_t(2), c.byref(offset), c.byref(size))
    function = c.c_void_p()
    gpu.call("cuKernelGetFunction", c.byref(function), count)
    gpu.call("cuFuncGetName", c.byref(name), function)
    assert name.value == b"count"
    gpu.call("cuFuncGetParamInfo", function, c.c_size_t(0), c.byref(offset), c.byref(size))
    assert (offset.value, size.value) == (0, 4)


def test_applies_a_kernels_dynamic_shared_memory_in_all_contexts(gpu):
    shares = kernel(gpu, load(gpu), b"shares")
    most = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    assert number(gpu, "cuKernelGetAttribute", 1, shares, 0) == 16384
    assert number(gpu, "cuKernelGetAttribute", most, shares, 0) == 32 << 10
    with fails(codes.INVALID_VALUE):
        gpu.launch(shares, [1], [1], shared=64 << 10)
    gpu.call("cuKernelSetAttribute", most, 64 << 10, shares, 0)
    assert number(gpu, "cuKernelGetAttribute", most, shares, 0) == 64 << 10
    gpu.launch(shares, [1], [1], shared=64 << 10)
    gpu.context()
    gpu.launch(shares, [1], [1], shared=64 << 10)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuKernelSetAttribute", most, 1 << 20, shares, 0)


def test_loads_a_library_from_a_file_and_refuses_other_files(gpu, tmp_path):
    file = tmp_path / "two.ptx"
    file.write_text(TWO)
    library, none = c.c_void_p(), (None, None, 0)
    gpu.call("cuLibraryLoadFromFile", c.byref(library), str(file).encode(), *none, *none)
    assert number(gpu, "cuLibraryGetKernelCount", library) == 2
    with fails(301):
        gpu.call("cuLibraryLoadFromFile", c.byref(library), b"/nowhere", *none, *none)
    with fails(codes.INVALID_IMAGE):
        load(gpu, "int main;")
    with pytest.raises(CudaError) as missing:
        kernel(gpu, library, b"other")
    assert missing.value.code == codes.NOT_FOUND
    for name in ("cuLibraryUnload", "cuKernelSetCacheConfig"):
        assert gpu.code(name, c.c_void_p(1), 0, 0) == codes.INVALID_HANDLE


def test_computes_occupancy(gpu):
    """An A100 has 2,048 threads and 163 KiB for blocks on each of its 108 multiprocessors."""
    shares = kernel(gpu, load(gpu), b"shares")
    plain = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    fit = "cuOccupancyMaxActiveBlocksPerMultiprocessor"
    assert number(gpu, fit, plain, 256, c.c_size_t(0)) == 8
    assert number(gpu, f"{fit}WithFlags", shares, 128, c.c_size_t(0), 0) == 10
    assert number(gpu, f"{fit}WithFlags", shares, 128, c.c_size_t(16384), 1) == 5
    sizes = "cuOccupancyMaxPotentialBlockSize"
    grid, block = c.c_int(), c.c_int()
    gpu.call(sizes, c.byref(grid), c.byref(block), plain, None, c.c_size_t(0), 0)
    assert (grid.value, block.value) == (216, 1024)
    gpu.call(sizes, c.byref(grid), c.byref(block), shares, None, c.c_size_t(0), 0)
    assert (grid.value, block.value) == (8 * 108, 256)
    per_thread = c.CFUNCTYPE(c.c_size_t, c.c_int)(lambda threads: 512 * threads)
    flags = (per_thread, c.c_size_t(0), 0, 0)
    gpu.call(f"{sizes}WithFlags", c.byref(grid), c.byref(block), plain, *flags)
    assert (grid.value, block.value) == (108, 320)
    available = c.c_size_t()
    gpu.call("cuOccupancyAvailableDynamicSMemPerBlock", c.byref(available), shares, 4, 128)
    assert available.value == 163 * 1024 // 4 - 16384
    with fails(codes.INVALID_VALUE):
        gpu.call("cuOccupancyAvailableDynamicSMemPerBlock", c.byref(available), shares, 11, 128)
