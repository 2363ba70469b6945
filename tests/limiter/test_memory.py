"""A share's memory: no more than its limit, by any way there is to take device memory."""

import re

import pytest

from divvy.agent.inject.share_usage import write_beyond
from lab.cluster.paths import REPOSITORY
from lab.driver_clients import cuda as codes
from tests.limiter.tenant import line, tell

EVERY_WAY = {
    "cuMemAlloc": "cuda.call('cuMemAlloc_v2', c.byref(at), c.c_size_t(SIZE))",
    "managed": "cuda.call('cuMemAllocManaged', c.byref(at), c.c_size_t(SIZE), c.c_uint(1))",
    "pitch": "cuda.call('cuMemAllocPitch_v2', c.byref(at), c.byref(pitch), c.c_size_t(1 << 20),"
    " c.c_size_t(SIZE >> 20), c.c_uint(4))",
    "async": "cuda.call('cuMemAllocAsync', c.byref(at), c.c_size_t(SIZE), None)",
    "async-ptsz": "cuda.call('cuMemAllocAsync_ptsz', c.byref(at), c.c_size_t(SIZE), None)",
    "pool": "cuda.call('cuMemAllocFromPoolAsync', c.byref(at), c.c_size_t(SIZE), pool, None)",
    "pool-ptsz": "cuda.call('cuMemAllocFromPoolAsync_ptsz', c.byref(at), c.c_size_t(SIZE), pool,"
    " None)",
    "handle": "cuda.call('cuMemCreate', c.byref(at), c.c_size_t(SIZE), c.byref(there),"
    " c.c_uint64(0))",
    "array": "cuda.call('cuArray3DCreate_v2', c.byref(at), c.byref(Shape(width=1 << 16,"
    " height=SIZE >> 18, format=0x20, channels=1)))",
    "plane": "cuda.call('cuArrayCreate_v2', c.byref(at), c.byref(Plane(1 << 16, SIZE >> 18, 0x20,"
    " 1)))",
    "mipmap": "cuda.call('cuMipmappedArrayCreate', c.byref(at), c.byref(Shape(width=1 << 16,"
    " height=SIZE >> 18, format=0x20, channels=1)), c.c_uint(1))",
}
PREPARE = """
from lab.driver_clients.cuda_structures import Properties, Shape
class Plane(c.Structure):
    _fields_ = [('width', c.c_size_t), ('height', c.c_size_t), ('format', c.c_int)]
    _fields_ += [('channels', c.c_uint)]
at, pitch, pool, there = c.c_uint64(), c.c_size_t(), c.c_void_p(), Properties(type=1, place=1)
cuda.call('cuDeviceGetDefaultMemPool', c.byref(pool), 0)
"""


@pytest.mark.parametrize("way", EVERY_WAY)
def test_limits_every_way_to_allocate_memory(tenants, way):
    tenant = tenants(1024)
    script = PREPARE + (
        f"for SIZE in (600 * MIB, 600 * MIB, 400 * MIB):\n"
        f"    print(tried(lambda: {EVERY_WAY[way]}), cuda.memory()[0] // MIB)\n"
    )
    assert tenant.run(script).splitlines() == ["0 424", "2 424", "0 24"]
    assert tenant.figures.refused[0] == 1


BAD_ACCESS = (REPOSITORY / "conformance/workloads/bad_access.ptx").read_text()


@pytest.mark.parametrize("way", sorted(EVERY_WAY.keys() - {"handle"}))  # which is of no context
def test_answers_as_the_driver_does_after_a_fault(tenants, way):
    """A program that is told of a lack of memory frees some and goes on, without its context."""
    script = PREPARE + (
        f"bad = cuda.function(cuda.module({BAD_ACCESS!r}), 'bad_access')\n"
        f"print(tried(lambda: cuda.launch(bad, (1, 1, 1), (1, 1, 1))))\n"
        f"for SIZE in (4 * MIB, 2048 * MIB):\n"
        f"    print(tried(lambda: {EVERY_WAY[way]}))\n"
    )
    assert tenants(1024).run(script).split() == [str(codes.ILLEGAL_ADDRESS)] * 3


def test_charges_a_mipmap_by_the_levels_that_are_possible(tenants):
    """A driver makes one of none, and of too many as many as there can be."""
    script = PREPARE + (
        """
def left(levels, **extents):
    shape = Shape(format=0x20, channels=1, **extents)
    return (cuda.code('cuMipmappedArrayCreate', c.byref(at), c.byref(shape), c.c_uint(levels)),
            cuda.memory()[0] // MIB)
LAYERED = 1
print(left(0, width=1 << 16, height=600 << 2), left(0, width=1 << 16, height=600 << 2))
print(left(2**32 - 1, width=1024, height=1024, depth=6, flags=LAYERED))
"""
    )
    assert tenants(1024).run(script).splitlines() == ["(0, 424) (2, 424)", "(0, 391)"]


FREES = {
    "cuMemAlloc": "cuda.free(at.value)",
    "managed": "cuda.free(at.value)",
    "pitch": "cuda.free(at.value)",
    "async": "(cuda.call('cuMemFreeAsync', at, None), cuda.call('cuCtxSynchronize'))",
    "pool": "(cuda.call('cuMemFreeAsync_ptsz', at, None), cuda.call('cuCtxSynchronize'))",
    "handle": "cuda.call('cuMemRelease', at)",
    "array": "cuda.call('cuArrayDestroy', at)",
    "plane": "cuda.call('cuArrayDestroy', at)",
    "mipmap": "cuda.call('cuMipmappedArrayDestroy', at)",
}


@pytest.mark.parametrize("way", FREES)
def test_allows_freed_memory_to_be_allocated_again(tenants, way):
    script = PREPARE + (
        f"SIZE = 600 * MIB\n"
        f"for _ in range(3):\n"
        f"    {EVERY_WAY[way]}\n"
        f"    {FREES[way]}\n"
        f"    print(cuda.memory()[0] // MIB, tried(lambda: {FREES[way]}) != 0)\n"
    )
    assert tenants(1024).run(script).splitlines() == ["1024 True"] * 3


def test_passes_the_driver_nothing_that_does_not_fit(tenants, driver):
    tenant = tenants(100)
    holder = tenant.start("print(tried(lambda: cuda.allocate(101 * MIB)), flush=True); input()")
    assert line(holder) == "2"
    assert driver.used_mib() == [0, 0]


def test_credits_memory_when_contexts_end(tenants):
    script = """
other = cuda.context()
cuda.allocate(600 * MIB)
cuda.call('cuCtxDestroy_v2', other)
print(cuda.memory()[0] // MIB)
primary = c.c_void_p()
cuda.call('cuDevicePrimaryCtxRetain', c.byref(primary), 0)
cuda.call('cuDevicePrimaryCtxRetain', c.byref(primary), 0)
cuda.call('cuCtxPushCurrent_v2', primary)
cuda.allocate(600 * MIB)
cuda.call('cuDevicePrimaryCtxRelease_v2', 0)
print(cuda.memory()[0] // MIB)
cuda.call('cuCtxPopCurrent_v2', None)
cuda.call('cuDevicePrimaryCtxRelease_v2', 0)
print(cuda.memory()[0] // MIB)
"""
    assert tenants(1024).run(script).split() == ["1024", "424", "1024"]


def test_charges_a_mapped_handle_until_it_is_unmapped(tenants):
    script = (
        PREPARE
        + """
SIZE, zero, address = 512 * MIB, c.c_uint64(0), c.c_uint64()
cuda.call('cuMemCreate', c.byref(at), c.c_size_t(SIZE), c.byref(there), zero)
cuda.call('cuMemAddressReserve', c.byref(address), c.c_size_t(SIZE), zero, zero, zero)
cuda.call('cuMemMap', address, c.c_size_t(SIZE), zero, at, zero)
cuda.call('cuMemRelease', at)
print(cuda.memory()[0] // MIB)
cuda.call('cuMemUnmap', address, c.c_size_t(SIZE))
print(cuda.memory()[0] // MIB)
"""
    )
    assert tenants(1024).run(script).split() == ["512", "1024"]


def test_reclaims_memory_kept_by_a_pool_at_the_limit(tenants):
    script = (
        PREPARE
        + """
cuda.call('cuMemPoolSetAttribute', pool, 4, c.byref(c.c_uint64(1 << 60)))
SIZE = 600 * MIB
cuda.call('cuMemAllocAsync', c.byref(at), c.c_size_t(SIZE), None)
cuda.call('cuMemFreeAsync', at, None)
cuda.call('cuCtxSynchronize')
print(cuda.memory()[0] // MIB)
cuda.call('cuMemAllocAsync', c.byref(at), c.c_size_t(SIZE), None)
cuda.call('cuMemFreeAsync', at, None)
print(tried(lambda: cuda.allocate(SIZE)), cuda.memory()[0] // MIB)
"""
    )
    assert tenants(1024).run(script).splitlines() == ["424", "0 424"]


def test_limits_each_gpu_in_any_order_of_visibility(tenants):
    script = """
for device in (0, 1):
    cuda.context(device)
    print(cuda.memory()[1] // MIB, tried(lambda: cuda.allocate(500 * MIB)))
"""
    tenant = tenants(400, 800)
    assert tenant.run(script).splitlines() == ["400 2", "800 0"]
    assert tenant.run(script, CUDA_VISIBLE_DEVICES="1,0").splitlines() == ["800 0", "400 2"]


def test_charges_no_host_memory(tenants):
    script = """
host = c.c_void_p()
cuda.call('cuMemAllocHost_v2', c.byref(host), c.c_size_t(64 * MIB))
print(cuda.memory()[0] // MIB)
"""
    assert tenants(32).run(script) == "32"


def test_shows_a_program_its_share(tenants):
    script = """
total = c.c_size_t()
cuda.call('cuDeviceTotalMem_v2', c.byref(total), 0)
cuda.allocate(1000 * MIB)
print(total.value // MIB, *(each // MIB for each in cuda.memory()))
print(cuda.code('cuMemGetInfo_v2', None, c.byref(total)))
print(cuda.code('cuMemAlloc_v2', None, c.c_size_t(8)), cuda.code('cuGetProcAddress', None, None))
"""
    # As the driver's own answers to null pointers: one of the two figures can be asked for alone.
    assert tenants(3000).run(script).splitlines() == ["3000 2000 3000", "0", "1 1"]


def test_returns_its_own_functions_by_name(tenants):
    script = """
found, status = c.c_void_p(), c.c_int()
allocate = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_size_t)
pointer = c.c_uint64()
for name, version, flags in ((b'cuMemAlloc', 12000, 0), (b'cuMemAlloc_v2', 11000, 1),
                             (b'cuMemAlloc', 13000, 2)):
    cuda.call('cuGetProcAddress_v2', name, c.byref(found), version, c.c_uint64(flags),
              c.byref(status))
    print(allocate(found.value)(c.addressof(pointer), 200 * MIB))
cuda.call('cuGetProcAddress', b'cuGetProcAddress', c.byref(found), 12000, c.c_uint64(0))
print(found.value == c.cast(cuda.library.cuGetProcAddress_v2, c.c_void_p).value)
print(cuda.code('cuGetProcAddress', b'cuNothing', c.byref(found), 12000, c.c_uint64(0)))
"""
    assert tenants(100).run(script).split() == ["2", "2", "2", "True", "500"]


UNSOUND_DEVICES = (
    "",
    "device GPU-1 memory 1 compute free weight 9 page - oversubscribed no\n",
    "{device} memory 0 compute free weight 100 page - oversubscribed no\n",
    "{device} memory 5 compute half weight 100 page - oversubscribed no\n",
    "{device} memory 5 compute free weight 101 page - oversubscribed no\n",
    "{device} memory 5 compute free weight 100 page - oversubscribed no",
    "{device} memory 5 compute free weight 9\n",
    "{device} memory 5 compute free weight 9 page -\n",
    "{device} memory 5 compute free weight 9 page - oversubscribed 2\n",
    "{device} memory 5 compute cap weight 9 page ../a oversubscribed no\n",
    "{device} memory 5 compute free weight 9 page - oversubscribed no\n" * 2,
)


@pytest.mark.parametrize(
    "limits",
    [None, "", "divvy-share 2\n", *(f"divvy-share 1\n{device}" for device in UNSOUND_DEVICES)],
)
def test_refuses_to_start_cuda_without_sound_limits(tenants, limits):
    tenant = tenants(100)
    path = tenant.share / "limits"
    if limits is None:
        path.unlink()
    else:
        device = re.findall(r"device \S+", path.read_text())[0]
        path.write_text(limits.replace("{device}", device))
    process = tenant.start("print(cuda.code('cuInit', 0), cuda.code('cuInit', 0))", context=False)
    out, errors = process.communicate()
    assert out == "304 304\n"
    lines = errors.splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("divvy: ")
    assert ("cannot be read" if limits is None else "not understood") in lines[0]
    assert lines[0].endswith("CUDA is not initialised")


def test_ignores_the_environment_for_the_limit(tenants):
    script = "print(tried(lambda: cuda.allocate(200 * MIB)))"
    environment = {"CUDA_DEVICE_MEMORY_LIMIT": "4g", "CUDA_DISABLE_CONTROL": "true"}
    assert tenants(100).run(script, **environment) == "2"


def test_counts_child_and_parent_as_one_share(tenants):
    script = """
child = os.fork()
cuda.init(); cuda.context()
if child == 0:
    print(tried(lambda: cuda.allocate(600 * MIB)), flush=True)
    sys.stdin.readline()
    print(tried(lambda: cuda.allocate(600 * MIB)), flush=True)
    os._exit(0)
"""
    tenant = tenants(1024)
    parent = tenant.start(script + "time.sleep(100)", context=False)
    assert line(parent) == "0"
    other = tenant.start("print(tried(lambda: cuda.allocate(600 * MIB)))")
    assert other.communicate()[0] == "2\n"
    tell(parent)
    assert line(parent) == "2"


def test_keeps_charging_a_child_after_its_parent(tenants):
    script = """
cuda.init(); cuda.context(); cuda.allocate(300 * MIB)
if os.fork() == 0:
    os.execv(sys.executable, [sys.executable, '-c', CHILD, *sys.argv[1:]])
time.sleep(0.1); print('parent', flush=True); time.sleep(100)
"""
    child = (
        "import ctypes, sys\n"
        "from pathlib import Path\n"
        "from lab.driver_clients.cuda import Cuda\n"
        "cuda = Cuda(Path(sys.argv[1])).init(); cuda.context(); cuda.allocate(400 << 20)\n"
        "print('child', cuda.memory()[0] >> 20, flush=True)\n"
        "sys.stdin.readline(); print(cuda.memory()[0] >> 20, flush=True)\n"
    )
    tenant = tenants(1024)
    parent = tenant.start(f"CHILD = {child!r}\n" + script, context=False)
    assert {line(parent), line(parent)} == {"parent", "child 324"}
    parent.kill()
    parent.wait()
    tell(parent)
    assert line(parent) == "624"


def test_counts_what_nvml_reports_beyond_the_slots(tenants):
    tenant = tenants(1000)
    script = """
cuda.allocate(300 * MIB)
print('ready', flush=True); sys.stdin.readline()
print(cuda.memory()[0] // MIB, tried(lambda: cuda.allocate(500 * MIB)), flush=True)
sys.stdin.readline()  # whoever ends has nothing any more
"""
    process = tenant.start(script)
    assert line(process) == "ready"
    (slot,) = tenant.figures.slots
    assert (slot.pid, slot.allocated[:2]) == (process.pid, (300 << 20, 0))
    nothing = (0,) * 15
    write_beyond(tenant.account, {slot: (150 << 20, *nothing)}, (100 << 20, *nothing))
    tell(process)
    assert line(process) == "450 2"
    assert tenant.figures.used[0] == 550 << 20


def test_reuses_memory_kept_by_pools_in_a_full_share(tenants):
    """What NVML sees beyond the limit takes nothing away that was given."""
    tenant = tenants(1000)
    script = PREPARE + (
        """
def taken(mib):
    return cuda.code('cuMemAllocAsync', c.byref(at), c.c_size_t(mib * MIB), None)
cuda.allocate(500 * MIB)
cuda.call('cuMemPoolSetAttribute', pool, 4, c.byref(c.c_uint64(2**64 - 1)))
print(taken(300), cuda.code('cuMemFreeAsync', at, None), flush=True)
sys.stdin.readline()
print(taken(300), taken(1))
"""
    )
    process = tenant.start(script)
    assert line(process) == "0 0"
    (slot,) = tenant.figures.slots
    write_beyond(tenant.account, {slot: (500 << 20, *(0,) * 15)}, (0,) * 16)
    tell(process)
    assert line(process) == "0 2"
