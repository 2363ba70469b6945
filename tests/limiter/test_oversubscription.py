"""Shares whose limits add up to more than the GPU: the host's memory takes what has no room."""

import pytest

from tests.limiter.tenant import line

FILL = "cuda.allocate(14000 * MIB); print('full', flush=True); input()"
PREPARE = """
from lab.driver_clients.cuda_structures import Properties, Shape
at, pitch, pool, there = c.c_uint64(), c.c_size_t(), c.c_void_p(), Properties(type=1, place=1)
cuda.call('cuDeviceGetDefaultMemPool', c.byref(pool), 0)
SIZE = 3000 * MIB
"""
PLAIN = "cuda.call('cuMemAlloc_v2', c.byref(at), c.c_size_t(SIZE))"
PITCH = (
    "cuda.call('cuMemAllocPitch_v2', c.byref(at), c.byref(pitch), c.c_size_t((1 << 20) - 100),"
    " c.c_size_t(SIZE >> 20), c.c_uint(4))"
)
# They have no managed kind.
OTHERS = {
    "async": "cuda.call('cuMemAllocAsync', c.byref(at), c.c_size_t(SIZE), None)",
    "handle": "cuda.call('cuMemCreate', c.byref(at), c.c_size_t(SIZE), c.byref(there),"
    " c.c_uint64(0))",
    "array": "cuda.call('cuArray3DCreate_v2', c.byref(at), c.byref(Shape(width=1 << 16,"
    " height=SIZE >> 18, format=0x20, channels=1)))",
}


@pytest.fixture
def full(tenants):
    """Fill the GPU, a T4 of 15,360 MiB, but for a rest."""
    other = tenants(14500)
    assert line(other.start(FILL)) == "full"


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("way", [PLAIN, PITCH], ids=["linear", "pitch"])
def test_places_in_host_memory_what_does_not_fit_the_gpu(tenants, way):
    script = f"""
print(tried(lambda: {way}), cuda.memory()[0] // MIB)
for text, place in ((b'begin', at.value), (b'far end', at.value + SIZE - 8 * MIB)):
    cuda.call('cuMemcpyHtoD_v2', c.c_uint64(place), text, c.c_size_t(len(text)))
print(cuda.download(at.value + SIZE - 8 * MIB, 7), cuda.download(at.value, 5))
print(tried(lambda: cuda.allocate(2001 * MIB)), tried(lambda: cuda.allocate(2000 * MIB)))
cuda.free(at.value)
print(cuda.memory()[0] // MIB)
"""
    tenant = tenants(5000, oversubscribed=True)
    assert tenant.run(PREPARE + script).splitlines() == [
        "0 2000",
        "b'far end' b'begin'",
        "2 0",
        "3000",
    ]
    assert tenant.figures.to_host[0] == 2
    assert tenant.figures.refused[0] == 1


@pytest.mark.usefixtures("full")
def test_returns_a_pitch_that_the_driver_would(tenants):
    script = f"""
print(tried(lambda: {PITCH}), pitch.value)
SIZE = 100 * MIB
cuda.call('cuMemAllocPitch_v2', c.byref(at), c.byref(pitch), c.c_size_t((1 << 20) - 100),
          c.c_size_t(8), c.c_uint(4))
print(pitch.value)
"""
    assert tenants(5000, oversubscribed=True).run(PREPARE + script).splitlines() == [
        f"0 {1 << 20}",
        f"{1 << 20}",
    ]


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("way", [PLAIN, PITCH], ids=["linear", "pitch"])
def test_refuses_allocations_on_a_full_gpu_without_oversubscription(tenants, way):
    tenant = tenants(5000)
    # Others have left less than the share promises, and the program is told so.
    script = PREPARE + f"print(tried(lambda: {way}), cuda.memory()[0] < 5000 * MIB)"
    assert tenant.run(script) == "2 True"
    assert (tenant.figures.to_host[0], tenant.figures.refused[0]) == (0, 0)


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("way", OTHERS)
def test_refuses_what_cannot_be_managed(tenants, way):
    tenant = tenants(5000, oversubscribed=True)
    script = PREPARE + f"print(tried(lambda: {OTHERS[way]}), cuda.memory()[0] // MIB)"
    assert tenant.run(script) == "2 5000"
    assert tenant.figures.to_host[0] == 0


def test_uses_the_gpu_first(tenants, driver):
    tenant = tenants(5000, oversubscribed=True)
    holder = tenant.start("cuda.allocate(3000 * MIB); print('done', flush=True); input()")
    assert line(holder) == "done"
    assert driver.used_mib()[0] >= 3000
    assert tenant.figures.to_host[0] == 0


@pytest.mark.usefixtures("full")
def test_keeps_host_allocations_off_the_gpu_while_it_is_full(tenants, driver):
    before = driver.used_mib()[0]
    tenant = tenants(5000, oversubscribed=True)
    holder = tenant.start("cuda.allocate(4000 * MIB); print('done', flush=True); input()")
    assert line(holder) == "done"
    assert before <= driver.used_mib()[0] <= 15360
    assert tenant.figures.used[0] >= 4000 << 20


def test_shows_a_share_that_is_larger_than_the_gpu(tenants):
    script = """
total = c.c_size_t()
cuda.call('cuDeviceTotalMem_v2', c.byref(total), 0)
cuda.allocate(1000 * MIB)
print(total.value // MIB, *(each // MIB for each in cuda.memory()))
"""
    # More left than there is in all would make a program's own figures negative.
    assert tenants(20_000, oversubscribed=True).run(script) == "20000 19000 20000"
