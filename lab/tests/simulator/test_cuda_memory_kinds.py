"""Memory of every kind: pools, handles, arrays, managed, shared with other processes."""

import ctypes as c
import os
import subprocess
import sys
import tempfile

import pytest

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda, fails
from lab.driver_clients.cuda_structures import Properties, Shape
from lab.driver_clients.driver_root import DriverRoot, eventually

MIB = 1 << 20
GRANULE = 2 * MIB
DEVICE, HOST, CPU = 1, 2, -1
RELEASE_THRESHOLD, RESERVED, USED = 4, 5, 7
PREFERRED, PREFETCHED = 2, 4


class Access(c.Structure):
    _fields_ = [("place", c.c_int), ("device", c.c_int), ("flags", c.c_int)]


class Copy2D(c.Structure):
    """CUDA_MEMCPY2D."""

    _fields_ = [("from_x", c.c_size_t), ("from_y", c.c_size_t), ("from_place", c.c_int)]
    _fields_ += [("from_host", c.c_void_p), ("from_device", c.c_uint64), ("from_array", c.c_void_p)]
    _fields_ += [("from_pitch", c.c_size_t), ("x", c.c_size_t), ("y", c.c_size_t)]
    _fields_ += [("place", c.c_int), ("host", c.c_void_p), ("device", c.c_uint64)]
    _fields_ += [("array", c.c_void_p), ("pitch", c.c_size_t)]
    _fields_ += [("width", c.c_size_t), ("height", c.c_size_t)]


@pytest.fixture
def driver(install) -> DriverRoot:
    return install("T4", 1)


@pytest.fixture
def gpu(driver: DriverRoot) -> Cuda:
    cuda = driver.cuda().init()
    cuda.context()
    return cuda


def used(cuda: Cuda, before: int) -> int:
    return before - cuda.memory()[0]


def allocate_async(cuda: Cuda, size: int, name: str = "cuMemAllocAsync") -> int:
    pointer = c.c_uint64()
    cuda.call(name, c.byref(pointer), c.c_size_t(size), None)
    return pointer.value


def attribute(cuda: Cuda, pool: c.c_void_p, which: int) -> int:
    value = c.c_uint64()
    cuda.call("cuMemPoolGetAttribute", pool, which, c.byref(value))
    return value.value


def test_keeps_freed_memory_in_a_pool_until_the_next_synchronisation(gpu):
    before = gpu.memory()[0]
    pointer = allocate_async(gpu, 8 * MIB)
    gpu.call("cuMemFreeAsync", c.c_uint64(pointer), None)
    assert used(gpu, before) == 8 * MIB
    with fails(codes.INVALID_VALUE):
        gpu.download(pointer, 1)
    assert allocate_async(gpu, 8 * MIB, "cuMemAllocAsync_ptsz") == pointer
    gpu.call("cuMemFreeAsync_ptsz", c.c_uint64(pointer), None)
    gpu.call("cuStreamSynchronize", None)
    assert used(gpu, before) == 0


def test_keeps_in_a_pool_what_its_threshold_allows(gpu):
    before, pool = gpu.memory()[0], c.c_void_p()
    gpu.call("cuDeviceGetDefaultMemPool", c.byref(pool), 0)
    gpu.call("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, c.byref(c.c_uint64(6 * MIB)))
    pointers = [allocate_async(gpu, 4 * MIB) for _ in range(3)]
    assert (attribute(gpu, pool, RESERVED), attribute(gpu, pool, USED)) == (12 * MIB, 12 * MIB)
    for pointer in pointers:
        gpu.call("cuMemFreeAsync", c.c_uint64(pointer), None)
    gpu.call("cuCtxSynchronize")
    assert (attribute(gpu, pool, RESERVED), attribute(gpu, pool, USED)) == (4 * MIB, 0)
    gpu.call("cuMemPoolTrimTo", pool, c.c_size_t(0))
    assert used(gpu, before) == 0


def test_reclaims_what_a_pool_keeps_for_other_allocations(gpu):
    pool = c.c_void_p()
    gpu.call("cuDeviceGetDefaultMemPool", c.byref(pool), 0)
    gpu.call("cuMemPoolSetAttribute", pool, RELEASE_THRESHOLD, c.byref(c.c_uint64(1 << 60)))
    free = gpu.memory()[0]
    gpu.call("cuMemFreeAsync", c.c_uint64(allocate_async(gpu, free - MIB)), None)
    gpu.call("cuCtxSynchronize")
    assert gpu.memory()[0] == MIB
    gpu.free(gpu.allocate(free // 2))


def test_serves_pools_of_the_programs_own(gpu):
    pool, pointer = c.c_void_p(), c.c_uint64()
    own = Properties(type=1, place=DEVICE, device=0)
    gpu.call("cuMemPoolCreate", c.byref(pool), c.byref(own))
    gpu.call("cuMemAllocFromPoolAsync", c.byref(pointer), c.c_size_t(MIB), pool, None)
    assert attribute(gpu, pool, USED) == MIB
    gpu.call("cuDeviceSetMemPool", 0, pool)
    allocate_async(gpu, MIB)
    assert attribute(gpu, pool, USED) == 2 * MIB
    gpu.call("cuMemPoolDestroy", pool)
    gpu.free(pointer.value)
    with fails(codes.INVALID_VALUE):
        attribute(gpu, pool, USED)
    with fails(codes.INVALID_HANDLE):
        gpu.call("cuMemAllocFromPoolAsync", c.byref(pointer), c.c_size_t(MIB), pool, None)
    for wrong, code in (
        (Properties(type=0, place=DEVICE), codes.INVALID_VALUE),
        (Properties(type=1, place=DEVICE, device=7), codes.INVALID_DEVICE),
        (Properties(type=1, place=DEVICE, handles=1), codes.NOT_SUPPORTED),
    ):
        with fails(code):
            gpu.call("cuMemPoolCreate", c.byref(pool), c.byref(wrong))
    with fails(codes.OUT_OF_MEMORY):
        allocate_async(gpu, 1 << 40)


def test_frees_pool_memory_that_ends_with_a_context(gpu):
    pool, context = c.c_void_p(), gpu.context()
    gpu.call("cuDeviceGetDefaultMemPool", c.byref(pool), 0)
    allocate_async(gpu, MIB)
    gpu.call("cuMemFreeAsync", c.c_uint64(allocate_async(gpu, MIB)), None)
    assert (attribute(gpu, pool, RESERVED), attribute(gpu, pool, USED)) == (2 * MIB, MIB)
    gpu.call("cuCtxDestroy_v2", context)
    assert (attribute(gpu, pool, RESERVED), attribute(gpu, pool, USED)) == (0, 0)


def test_maps_handles_side_by_side(gpu):
    before, address, handles = gpu.memory()[0], c.c_uint64(), []
    properties = Properties(type=1, place=DEVICE)
    for _ in range(2):
        handle = c.c_uint64()
        gpu.call(
            "cuMemCreate", c.byref(handle), c.c_size_t(GRANULE), c.byref(properties), c.c_uint64(0)
        )
        handles.append(handle)
    assert used(gpu, before) == 2 * GRANULE
    zero = c.c_uint64(0)
    reserve = ("cuMemAddressReserve", c.byref(address), c.c_size_t(4 * GRANULE), zero, zero, zero)
    gpu.call(*reserve)
    for at, handle in enumerate(handles):
        place = c.c_uint64(address.value + at * GRANULE)
        gpu.call("cuMemMap", place, c.c_size_t(GRANULE), zero, handle, zero)
        with fails(208):
            gpu.call("cuMemMap", place, c.c_size_t(GRANULE), zero, handle, zero)
    with fails(codes.INVALID_VALUE):
        gpu.download(address.value, 1)
    rights = Access(DEVICE, 0, 3)
    gpu.call("cuMemSetAccess", address, c.c_size_t(2 * GRANULE), c.byref(rights), c.c_size_t(1))
    text = bytes(range(256)) * 32
    border = c.c_uint64(address.value + GRANULE - 4096)
    gpu.call("cuMemcpyHtoD_v2", border, text, c.c_size_t(len(text)))
    assert gpu.download(border.value, len(text)) == text
    for handle in handles:
        gpu.call("cuMemRelease", handle)
    assert used(gpu, before) == 2 * GRANULE
    gpu.call("cuMemUnmap", address, c.c_size_t(2 * GRANULE))
    assert used(gpu, before) == 0
    gpu.call("cuMemAddressFree", address, c.c_size_t(4 * GRANULE))


def test_passes_a_handles_ownership_on_by_a_map(gpu):
    """Each has to release it, and the map keeps it for those to come."""
    before, address, handle, again = gpu.memory()[0], c.c_uint64(), c.c_uint64(), c.c_uint64()
    zero, size = c.c_uint64(0), c.c_size_t(GRANULE)
    properties = Properties(type=1, place=DEVICE)
    gpu.call("cuMemCreate", c.byref(handle), size, c.byref(properties), zero)
    gpu.call("cuMemAddressReserve", c.byref(address), size, zero, zero, zero)
    gpu.call("cuMemMap", address, size, zero, handle, zero)
    gpu.call("cuMemRelease", handle)
    gpu.call("cuMemRetainAllocationHandle", c.byref(again), c.c_void_p(address.value))
    gpu.call("cuMemUnmap", address, size)
    assert used(gpu, before) == GRANULE
    gpu.call("cuMemRelease", again)
    assert used(gpu, before) == 0
    with fails(codes.INVALID_VALUE):
        gpu.call("cuMemRelease", again)


def test_refuses_wrong_handles(gpu):
    handle, properties = c.c_uint64(), Properties(type=1, place=DEVICE)

    def create(size: int, properties: Properties) -> None:
        gpu.call(
            "cuMemCreate", c.byref(handle), c.c_size_t(size), c.byref(properties), c.c_uint64(0)
        )

    with fails(codes.INVALID_VALUE):
        create(GRANULE + 1, properties)
    with fails(codes.INVALID_DEVICE):
        create(GRANULE, Properties(type=1, place=DEVICE, device=3))
    with fails(codes.OUT_OF_MEMORY):
        create(1 << 40, properties)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuMemRelease", c.c_uint64(12345))
    create(GRANULE, properties)
    shared = c.c_int()
    with fails(codes.INVALID_VALUE):  # not made to be exported
        gpu.call("cuMemExportToShareableHandle", c.byref(shared), handle, 1, c.c_uint64(0))


def test_charges_nothing_for_an_imported_handle(gpu):
    handle, other, file = c.c_uint64(), c.c_uint64(), c.c_int()
    properties = Properties(type=1, handles=1, place=DEVICE)
    zero = c.c_uint64(0)
    gpu.call("cuMemCreate", c.byref(handle), c.c_size_t(GRANULE), c.byref(properties), zero)
    free = gpu.memory()[0]
    gpu.call("cuMemExportToShareableHandle", c.byref(file), handle, 1, zero)
    gpu.call("cuMemImportFromShareableHandle", c.byref(other), c.c_void_p(file.value), 1)
    assert gpu.memory()[0] == free
    gpu.call("cuMemRelease", other)
    assert gpu.memory()[0] == free
    gpu.call("cuMemRelease", handle)
    assert gpu.memory()[0] == free + GRANULE


IMPORTER = (
    "import ctypes as c, sys; from pathlib import Path; from lab.driver_clients.cuda import Cuda\n"
    "cuda, handle = Cuda(Path(sys.argv[1])).init(), c.c_uint64(); cuda.context()\n"
    "file = c.c_void_p(int(sys.argv[2]))\n"
    "cuda.call('cuMemImportFromShareableHandle', c.byref(handle), file, 1)\n"
    "print('held', flush=True); sys.stdin.readline()\n"
)


def memory_of_processes(driver: DriverRoot) -> dict[int, int]:
    lines = driver.smi("--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits")
    return {int(pid): int(mib) for pid, mib in (line.split(",") for line in lines.splitlines())}


def test_keeps_imported_memory_while_any_process_holds_it(driver, gpu):
    handle, file, zero = c.c_uint64(), c.c_int(), c.c_uint64(0)
    properties, size = Properties(type=1, handles=1, place=DEVICE), 8 * MIB
    gpu.call("cuMemCreate", c.byref(handle), c.c_size_t(size), c.byref(properties), zero)
    gpu.call("cuMemExportToShareableHandle", c.byref(file), handle, 1, zero)
    importers = []
    for _ in range(2):
        command = [sys.executable, "-c", IMPORTER, str(driver.library("libcuda.so.1"))]
        importer = subprocess.Popen(
            [*command, str(file.value)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=[file.value],
        )
        importers.append(importer)
        assert importer.stdout is not None
        assert importer.stdout.readline() == "held\n"
    first, second = (importer.pid for importer in importers)
    own = os.getpid()
    # Counted once, at who has held it longest.
    assert memory_of_processes(driver) == {own: 8, first: 0, second: 0}
    gpu.call("cuMemRelease", handle)
    assert memory_of_processes(driver) == {own: 0, first: 8, second: 0}
    importers[0].communicate("end\n")
    assert eventually(lambda: memory_of_processes(driver) == {own: 0, second: 8})
    assert driver.used_mib() == [8]
    importers[1].communicate("end\n")
    assert eventually(lambda: driver.used_mib() == [0])
    # The exported file is left: whoever opens it now takes the memory again.
    gpu.call("cuMemImportFromShareableHandle", c.byref(handle), c.c_void_p(file.value), 1)
    assert memory_of_processes(driver) == {own: 8}


def test_refuses_to_import_a_file_that_is_no_memory(gpu):
    with tempfile.TemporaryFile() as file:
        file.truncate(GRANULE)
        with fails(codes.INVALID_DEVICE):
            number = c.c_void_p(file.fileno())
            gpu.call("cuMemImportFromShareableHandle", c.byref(c.c_uint64()), number, 1)


def test_charges_no_device_memory_for_pools_on_the_host(gpu):
    before, pool, pointer = gpu.memory()[0], c.c_void_p(), c.c_uint64()
    gpu.call("cuMemPoolCreate", c.byref(pool), c.byref(Properties(type=1, place=HOST)))
    gpu.call("cuMemAllocFromPoolAsync", c.byref(pointer), c.c_size_t(8 * MIB), pool, None)
    assert (used(gpu, before), attribute(gpu, pool, USED)) == (0, 8 * MIB)
    gpu.call("cuMemsetD8_v2", pointer, 3, c.c_size_t(2))
    assert gpu.download(pointer.value, 2) == b"\3\3"
    gpu.call("cuMemFreeAsync", pointer, None)
    assert attribute(gpu, pool, USED) == 0
    gpu.call("cuMemAllocFromPoolAsync", c.byref(pointer), c.c_size_t(8 * MIB), pool, None)
    gpu.call("cuMemPoolDestroy", pool)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuMemPoolCreate", c.byref(pool), c.byref(Properties(type=1, place=9)))


def test_allocates_arrays_in_whole_rows(gpu):
    before, array = gpu.memory()[0], c.c_void_p()
    shape = Shape(width=100, height=10, format=0x20, channels=1)
    gpu.call("cuArray3DCreate_v2", c.byref(array), c.byref(shape))
    assert used(gpu, before) == 512 * 10
    text = bytes(range(200)) * 2
    copy = Copy2D(from_place=1, from_host=c.cast(text, c.c_void_p), from_pitch=40, place=3)
    copy.array, copy.width, copy.height, copy.x, copy.y = array.value, 40, 10, 8, 0
    gpu.call("cuMemcpy2D_v2", c.byref(copy))
    back = c.create_string_buffer(400)
    there = Copy2D(from_place=3, from_array=array.value, from_x=8, place=1, pitch=40)
    there.host, there.width, there.height = c.cast(back, c.c_void_p), 40, 10
    gpu.call("cuMemcpy2DUnaligned_v2", c.byref(there))
    assert back.raw == text
    there.height = 11
    with fails(codes.INVALID_VALUE):
        gpu.call("cuMemcpy2D_v2", c.byref(there))
    gpu.call("cuArrayDestroy", array)
    assert used(gpu, before) == 0
    with fails(codes.INVALID_HANDLE):
        gpu.call("cuArrayDestroy", array)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuArray3DCreate_v2", c.byref(array), c.byref(Shape(width=1, format=99)))


def test_allocates_mipmapped_arrays_with_all_levels_or_none(gpu):
    before, mipmap, level = gpu.memory()[0], c.c_void_p(), c.c_void_p()
    shape = Shape(width=256, height=256, format=0x20, channels=4)
    gpu.call("cuMipmappedArrayCreate", c.byref(mipmap), c.byref(shape), c.c_uint(3))
    assert used(gpu, before) == 4096 * 256 + 2048 * 128 + 1024 * 64
    gpu.call("cuMipmappedArrayGetLevel", c.byref(level), mipmap, c.c_uint(2))
    with fails(codes.INVALID_VALUE):
        gpu.call("cuMipmappedArrayGetLevel", c.byref(level), mipmap, c.c_uint(3))
    gpu.call("cuMipmappedArrayDestroy", mipmap)
    assert used(gpu, before) == 0
    # The number is raised to the least that is possible.
    gpu.call("cuMipmappedArrayCreate", c.byref(mipmap), c.byref(shape), c.c_uint(0))
    assert used(gpu, before) == 4096 * 256
    gpu.call("cuMipmappedArrayDestroy", mipmap)
    gpu.allocate(gpu.memory()[0] - MIB)
    with fails(codes.OUT_OF_MEMORY):
        gpu.call("cuMipmappedArrayCreate", c.byref(mipmap), c.byref(shape), c.c_uint(9))
    assert gpu.memory()[0] == MIB


def test_places_managed_memory_on_the_device_while_there_is_space(gpu):
    pointer, value = c.c_uint64(), c.c_int()
    free, total = gpu.memory()
    gpu.call("cuMemAllocManaged", c.byref(pointer), c.c_size_t(2 * total), c.c_uint(1))
    assert gpu.memory()[0] == 0
    whole = (pointer, c.c_size_t(2 * total))
    gpu.call("cuMemPrefetchAsync", *whole, CPU, None)
    assert gpu.memory()[0] == free
    gpu.call("cuMemAdvise", *whole, 3, 0)
    gpu.call("cuMemRangeGetAttribute", c.byref(value), c.c_size_t(4), PREFERRED, *whole)
    assert value.value == 0
    gpu.call("cuMemRangeGetAttribute", c.byref(value), c.c_size_t(4), PREFETCHED, *whole)
    assert value.value == CPU
    gpu.call("cuMemPrefetchAsync", *whole, 0, None)
    assert gpu.memory()[0] == 0
    gpu.free(pointer.value)
    assert gpu.memory()[0] == free
    with fails(codes.INVALID_VALUE):
        gpu.call("cuMemPrefetchAsync", *whole, 0, None)


def test_opens_memory_of_another_process(driver):
    script = (
        "import ctypes as c, sys; from pathlib import Path\n"
        "from lab.driver_clients.cuda import Cuda\n"
        "cuda = Cuda(Path(sys.argv[1])).init(); cuda.context(); free = cuda.memory()[0]\n"
        "class Handle(c.Structure): _fields_ = [('bytes', c.c_ubyte * 64)]\n"
        "handle, pointer = Handle.from_buffer_copy(bytes.fromhex(sys.argv[2])), c.c_uint64()\n"
        "cuda.call('cuIpcOpenMemHandle_v2', c.byref(pointer), handle, c.c_uint(1))\n"
        "assert cuda.memory()[0] == free\n"
        "print(cuda.download(pointer.value, 5).decode())\n"
        "cuda.call('cuMemsetD8_v2', pointer, 33, c.c_size_t(1))\n"
        "cuda.call('cuIpcCloseMemHandle', pointer)\n"
    )
    cuda = driver.cuda().init()
    cuda.context()
    pointer, handle = cuda.upload(b"hello" * 2000), (c.c_ubyte * 64)()
    cuda.call("cuIpcGetMemHandle", handle, c.c_uint64(pointer + 5))
    library = str(driver.library("libcuda.so.1"))
    done = subprocess.run(
        [sys.executable, "-c", script, library, bytes(handle).hex()],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout, done.stderr) == ("hello\n", "")
    assert cuda.download(pointer, 10) == b"hello!ello"
    with fails(codes.INVALID_VALUE):
        cuda.call("cuIpcGetMemHandle", handle, c.c_uint64(12345))
    with fails(codes.INVALID_VALUE):
        cuda.call("cuIpcCloseMemHandle", c.c_uint64(pointer))


@pytest.mark.usefixtures("administrator")
def test_charges_a_context_memory_of_its_own(driver):
    driver.sim("context-memory", "0", "300")
    cuda = driver.cuda().init()
    first = cuda.context()
    assert driver.used_mib()[0] == 300
    cuda.context()
    assert driver.used_mib()[0] == 600
    cuda.call("cuCtxDestroy_v2", first)
    assert driver.used_mib()[0] == 300
    assert driver.smi("--query-compute-apps=used_memory", "--format=csv,noheader") == "300 MiB\n"
    driver.sim("context-memory", "0", "15300")
    with fails(codes.OUT_OF_MEMORY):
        cuda.context()
    driver.sim("context-memory", "0", "99999", rc=1)
