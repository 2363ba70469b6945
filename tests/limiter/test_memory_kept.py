"""Memory that no allocation shows: of destroyed pools, modules, contexts, other processes."""

from __future__ import annotations

from divvy.agent.inject.share_usage import write_beyond
from tests.limiter.tenant import line, tell
from tests.limiter.test_memory import PREPARE

MIB = 1 << 20
_POOL = PREPARE + (
    """
def pool_of(size):
    made = c.c_void_p()
    cuda.call('cuMemPoolCreate', c.byref(made), c.byref(there))
    cuda.call('cuMemAllocFromPoolAsync', c.byref(at), c.c_size_t(size), made, None)
    return made
def destroyed(made):
    cuda.call('cuMemPoolDestroy', made)
    return cuda.memory()[0] // MIB
"""
)


def test_charges_a_destroyed_pool_until_its_memory_is_freed(tenants, driver):
    script = _POOL + (
        """
print(destroyed(pool_of(600 * MIB)), tried(lambda: pool_of(600 * MIB)), flush=True)
sys.stdin.readline()
cuda.call('cuMemFreeAsync', at, None)
cuda.call('cuCtxSynchronize')
print(cuda.memory()[0] // MIB, flush=True); sys.stdin.readline()
"""
    )
    process = tenants(1000).start(script)
    assert line(process) == "400 2"
    assert driver.used_mib()[0] == 600
    tell(process)
    assert line(process) == "1000"
    assert driver.used_mib()[0] == 0


def test_allocates_nothing_from_a_destroyed_pool(tenants):
    script = _POOL + (
        """
made, current, default = pool_of(100 * MIB), c.c_void_p(), c.c_void_p()
cuda.call('cuDeviceSetMemPool', 0, made)
first = at.value
print(destroyed(made), cuda.code('cuMemPoolDestroy', made))
print(cuda.code('cuMemAllocFromPoolAsync', c.byref(at), c.c_size_t(8), made, None))
cuda.call('cuDeviceGetMemPool', c.byref(current), 0)
cuda.call('cuDeviceGetDefaultMemPool', c.byref(default), 0)
print(current.value == default.value, cuda.code('cuMemPoolDestroy', default))
cuda.free(first)
print(cuda.memory()[0] // MIB)
"""
    )
    assert tenants(1000).run(script).splitlines() == ["900 1", "1", "True 1", "1000"]


def test_serves_any_number_of_pools_of_a_process(tenants):
    script = _POOL + (
        """
pools = [pool_of(MIB) for _ in range(200)]
print(cuda.memory()[0] // MIB, [destroyed(each) for each in pools][-1])
"""
    )
    assert tenants(1000).run(script) == "800 800"


def test_charges_nothing_for_a_pool_on_the_host(tenants):
    script = PREPARE + (
        """
made, host = c.c_void_p(), Properties(type=1, place=2)
cuda.call('cuMemPoolCreate', c.byref(made), c.byref(host))
cuda.call('cuMemAllocFromPoolAsync', c.byref(at), c.c_size_t(150 * MIB), made, None)
print(cuda.memory()[0] // MIB)
cuda.call('cuMemPoolDestroy', made)
print(cuda.memory()[0] // MIB)
"""
    )
    assert tenants(100).run(script).split() == ["100", "100"]


def test_charges_a_pool_to_its_own_gpu(tenants):
    """Whoever names a pool of another GPU gets nothing from it, and changes nothing."""
    script = _POOL + (
        """
cuda.call('cuDeviceGetDefaultMemPool', c.byref(pool), 1)
def take(size):
    return cuda.code('cuMemAllocFromPoolAsync', c.byref(at), c.c_size_t(size), pool, None)
print(take(8))
cuda.context(1)
print(take(600 * MIB), take(60 * MIB), cuda.memory()[0] // MIB)
"""
    )
    assert tenants(1000, 100).run(script).splitlines() == ["101", "2 0 40"]


def test_credits_pool_memory_that_ends_with_a_context(tenants):
    """Other processes of the share need not wait for this one's next call."""
    tenant = tenants(1000)
    script = _POOL + (
        """
made = cuda.context()
cuda.call('cuMemAllocAsync', c.byref(at), c.c_size_t(600 * MIB), None)
cuda.call('cuCtxDestroy_v2', made)
print('ended', flush=True); sys.stdin.readline()
"""
    )
    assert line(tenant.start(script)) == "ended"
    assert tenant.figures.used[0] == 0


_RACE = (
    _POOL
    + """
import threading
stream, current, ended = cuda.stream(1), c.c_void_p(), False
cuda.call('cuCtxGetCurrent', c.byref(current))
def capture():
    graph = c.c_void_p()
    cuda.call('cuCtxSetCurrent', current)
    while not ended:
        cuda.code('cuStreamBeginCapture_v2', stream, 2)
        if cuda.code('cuStreamEndCapture', stream, c.byref(graph)) == 0:
            cuda.call('cuGraphDestroy', graph)
thread = threading.Thread(target=capture)
thread.start()
allocate = cuda.library.cuMemAllocAsync
for _ in range(200_000):
    allocate(c.byref(at), c.c_size_t(600 * MIB), stream)
ended = True
thread.join()
print('ended', flush=True); sys.stdin.readline()
"""
)


def test_admits_no_allocation_past_the_limit_during_captures(tenants, driver):
    tenant = tenants(1000)
    assert line(tenant.start(_RACE)) == "ended"
    assert driver.used_mib()[0] <= 1000
    assert tenant.figures.used[0] <= 1000 * MIB


_MODULE = """
def ptx(variables):
    return '.version 7.0\\n.target sm_70\\n.address_size 64\\n' + variables
def loaded(size):
    part = size // 20
    return cuda.module(ptx(''.join(f'.global .b8 field{i}[{part}];\\n' for i in range(20))))
"""


def test_charges_a_module_by_its_variables(tenants):
    script = _MODULE + (
        """
first = loaded(600 * MIB)
print(cuda.memory()[0] // MIB, tried(lambda: loaded(600 * MIB)))
cuda.call('cuModuleUnload', first)
print(cuda.memory()[0] // MIB, tried(lambda: loaded(600 * MIB)))
"""
    )
    assert tenants(1000).run(script).splitlines() == ["400 2", "1000 0"]


_LIBRARY = _MODULE + (
    """
module = c.c_void_p()
image = ptx(''.join(f'.global .b8 field{i}[{30 * MIB}];\\n' for i in range(20))).encode()
def library():
    made = c.c_void_p()
    cuda.call('cuLibraryLoadData', c.byref(made), image, None, None, 0, None, None, 0)
    return made
def left():
    return cuda.memory()[0] // MIB
"""
)


def test_charges_a_library_before_there_is_a_context(tenants):
    script = _LIBRARY + (
        """
cuda.init()
first = library()
print(tried(library))
cuda.context()
cuda.call('cuLibraryGetModule', c.byref(module), first)
print(left())
cuda.call('cuLibraryUnload', first)
print(left(), tried(library))
"""
    )
    assert tenants(1000).run(script, context=False).splitlines() == ["2", "400", "1000 0"]


def test_charges_a_library_on_every_gpu_beyond_the_end_of_a_context(tenants):
    script = _LIBRARY + (
        """
made = cuda.context()
first = library()
cuda.call('cuCtxDestroy_v2', made)
print(left())
cuda.context(1)
print(left(), tried(library))
cuda.call('cuLibraryUnload', first)
print(left())
"""
    )
    assert tenants(1000, 1000).run(script).splitlines() == ["400", "400 2", "1000"]


def test_charges_a_library_nowhere_that_one_gpu_has_no_memory_for(tenants):
    script = _LIBRARY + "print(tried(library), left())\n"
    assert tenants(1000, 500).run(script) == "2 1000"


def test_refuses_modules_and_contexts_in_a_full_share(tenants):
    script = _MODULE + (
        """
cuda.allocate(100 * MIB)
print(tried(lambda: cuda.module(ptx(''))), tried(cuda.context))
"""
    )
    assert tenants(100).run(script) == "2 2"


def test_charges_a_context_by_what_contexts_last_took(tenants):
    tenant = tenants(1000)
    first = tenant.start("print('ready', flush=True); sys.stdin.readline()")
    assert line(first) == "ready"
    (slot,) = tenant.figures.slots
    write_beyond(tenant.account, {slot: (300 * MIB, *(0,) * 15)}, (0,) * 16)
    script = """
print(cuda.memory()[0] // MIB, flush=True)
primary = c.c_void_p()
def retained():
    return tried(lambda: cuda.call('cuDevicePrimaryCtxRetain', c.byref(primary), 0))
print(retained(), cuda.memory()[0] // MIB)
print(retained(), tried(cuda.context))
cuda.call('cuDevicePrimaryCtxRelease_v2', 0)
cuda.call('cuDevicePrimaryCtxRelease_v2', 0)
print(cuda.memory()[0] // MIB)
"""
    assert tenant.run(script).splitlines() == ["400", "0 100", "0 2", "400"]
    tell(first)
    first.wait()
    # Its next processes know it still.
    assert tenant.run("print(cuda.memory()[0] // MIB)") == "700"


def test_bounds_what_it_charges_for_a_context(tenants):
    """What NVML sees of a program may be its own: libraries, local memory."""
    tenant = tenants(1000)
    first = tenant.start("print('ready', flush=True); sys.stdin.readline()")
    assert line(first) == "ready"
    (slot,) = tenant.figures.slots
    write_beyond(tenant.account, {slot: (5000 * MIB, *(0,) * 15)}, (0,) * 16)
    tell(first)
    first.wait()
    assert tenant.run("print(cuda.memory()[0] // MIB)") == "488"


def test_charges_a_heap_beyond_the_drivers_own(tenants):
    script = """
HEAP, context = 2, c.c_void_p()
cuda.call('cuCtxGetCurrent', c.byref(context))
def heap(mib):
    return cuda.code('cuCtxSetLimit', HEAP, c.c_size_t(mib * MIB)), cuda.memory()[0] // MIB
print(heap(608), heap(2000), heap(308), heap(8))
heap(608)
cuda.call('cuCtxDestroy_v2', context)
cuda.context()
print(cuda.memory()[0] // MIB)
"""
    out = tenants(1000).run(script).splitlines()
    # A driver keeps it until the context ends, and so does the charge.
    assert out == ["(0, 400) (2, 400) (0, 400) (0, 400)", "1000"]


def test_charges_nothing_for_the_drivers_own_limits(tenants):
    """The buffer of printf grows with the GPU: 64 KiB for each multiprocessor."""
    script = """
value = c.c_size_t()
for which in (0, 1, 2):
    cuda.call('cuCtxGetLimit', c.byref(value), which)
    print(cuda.code('cuCtxSetLimit', which, value), cuda.memory()[0] // MIB)
print(cuda.code('cuCtxSetLimit', 1, c.c_size_t((40 << 16) + 100 * MIB)), cuda.memory()[0] // MIB)
"""
    assert tenants(1000).run(script).splitlines() == ["0 1000", "0 1000", "0 1000", "0 900"]


def test_charges_a_stack_for_every_possible_thread(tenants):
    script = """
print(cuda.code('cuCtxSetLimit', 0, c.c_size_t(16 << 10)), cuda.memory()[0] // MIB)
print(cuda.code('cuCtxSetLimit', 0, c.c_size_t(64 << 10)), cuda.memory()[0] // MIB)
"""
    # A T4: 40 multiprocessors of 1,024 threads; 15 KiB more for each.
    assert tenants(1000).run(script).splitlines() == ["0 400", "2 400"]


def test_counts_contexts_ended_by_the_old_names(tenants):
    script = """
other, primary = cuda.context(), c.c_void_p()
cuda.allocate(600 * MIB)
cuda.call('cuCtxDestroy', other)
print(cuda.memory()[0] // MIB)
for end in ('cuDevicePrimaryCtxRelease', 'cuDevicePrimaryCtxReset'):
    cuda.call('cuDevicePrimaryCtxRetain', c.byref(primary), 0)
    cuda.call('cuCtxPushCurrent_v2', primary)
    cuda.allocate(600 * MIB)
    cuda.call('cuCtxPopCurrent_v2', None)
    cuda.call(end, 0)
    print(cuda.memory()[0] // MIB)
"""
    assert tenants(1000).run(script).split() == ["1000"] * 3


def test_returns_its_own_functions_by_every_versioned_name(tenants):
    script = """
found, status = c.c_void_p(), c.c_int()
def address(name, version=13000, flags=0):
    cuda.call('cuGetProcAddress_v2', name.encode(), c.byref(found), version, c.c_uint64(flags),
              c.byref(status))
    return found.value
def same(name, base, *more):
    return address(base, *more) == c.cast(getattr(cuda.library, name), c.c_void_p).value
for name in ('cuMemAllocAsync_ptsz', 'cuLaunchKernel_ptsz', 'cuMemcpyDtoH_v2_ptds',
             'cuStreamSynchronize_ptsz', 'cuGraphLaunch_ptsz', 'cuCtxDestroy_v2', 'cuCtxCreate_v2'):
    print(same(name, name), end=' ')
# Of several versions the one that the driver has chosen.
print(same('cuMemAllocAsync_ptsz', 'cuMemAllocAsync', 12000, 2),
      same('cuCtxCreate_v2', 'cuCtxCreate', 11000), same('cuCtxCreate_v4', 'cuCtxCreate', 13000),
      same('cuGraphInstantiate_v2', 'cuGraphInstantiate', 11000),
      same('cuGraphInstantiateWithFlags', 'cuGraphInstantiate', 12000))
"""
    assert set(tenants(1000).run(script).split()) == {"True"}


def test_charges_imported_memory_where_it_is_mapped(tenants):
    """Its maker may end, and it lives on."""
    script = """
import socket
from lab.driver_clients.cuda_structures import Properties
SIZE, zero, at, there = 600 * MIB, c.c_uint64(0), c.c_uint64(), Properties(type=1, place=1)
def made():
    ours, theirs = socket.socketpair()
    child = os.fork()
    if child == 0:
        cuda.init(); cuda.context()
        there.handles = 1
        file = c.c_int()
        cuda.call('cuMemCreate', c.byref(at), c.c_size_t(SIZE), c.byref(there), zero)
        cuda.call('cuMemExportToShareableHandle', c.byref(file), at, 1, zero)
        socket.send_fds(theirs, [b'x'], [file.value])
        theirs.recv(1)
        os._exit(0)
    _, (file,), _, _ = socket.recv_fds(ours, 1, 1)
    ours.send(b'x')
    os.waitpid(child, 0)
    return file
files = [made(), made()]
cuda.init(); cuda.context()
def mapped(file):
    address = c.c_uint64()
    cuda.call('cuMemImportFromShareableHandle', c.byref(at), c.c_void_p(file), 1)
    cuda.call('cuMemAddressReserve', c.byref(address), c.c_size_t(SIZE), zero, zero, zero)
    cuda.call('cuMemMap', address, c.c_size_t(SIZE), zero, at, zero)
    cuda.call('cuMemRelease', at)
    return address
first = mapped(files[0])
print(cuda.memory()[0] // MIB, tried(lambda: mapped(files[1])))
cuda.call('cuMemUnmap', first, c.c_size_t(SIZE))
print(cuda.memory()[0] // MIB)
"""
    out = tenants(1000).run(script, context=False)
    assert out.splitlines() == ["400 2", "1000"]


def test_charges_a_handle_returned_by_a_map_until_its_last_release(tenants):
    script = PREPARE + (
        """
again, address, zero, SIZE = c.c_uint64(), c.c_uint64(), c.c_uint64(0), c.c_size_t(600 * MIB)
cuda.call('cuMemCreate', c.byref(at), SIZE, c.byref(there), zero)
cuda.call('cuMemAddressReserve', c.byref(address), SIZE, zero, zero, zero)
cuda.call('cuMemMap', address, SIZE, zero, at, zero)
cuda.call('cuMemRelease', at)
cuda.call('cuMemRetainAllocationHandle', c.byref(again), c.c_void_p(address.value))
cuda.call('cuMemUnmap', address, SIZE)
print(cuda.memory()[0] // MIB)
cuda.call('cuMemRelease', again)
print(cuda.memory()[0] // MIB)
"""
    )
    assert tenants(1000).run(script).splitlines() == ["400", "1000"]
