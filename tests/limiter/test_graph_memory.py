"""Graphs that allocate: what the driver keeps for them is charged, no more and no later."""

from __future__ import annotations

from tests.limiter.tenant import line, tell
from tests.limiter.test_memory import PREPARE

MIB = 1 << 20
_GRAPHS = PREPARE + (
    """
class Node(c.Structure):
    _fields_ = [('type', c.c_int), ('handles', c.c_int), ('place', c.c_int), ('device', c.c_int)]
    _fields_ += [('rest', c.c_ubyte * 72), ('access', c.c_void_p), ('accesses', c.c_size_t)]
    _fields_ += [('bytes', c.c_size_t), ('address', c.c_uint64)]
AUTO_FREE = 1
def chain(*steps):
    '''A graph of nodes one after the other: MiB to allocate, 0 to free what was last allocated.'''
    graph, node, last = c.c_void_p(), c.c_void_p(), Node()
    cuda.call('cuGraphCreate', c.byref(graph), 0)
    for mib in steps:
        after, count = (c.byref(c.c_void_p(node.value)), 1) if node.value else (None, 0)
        if mib:
            last = Node(type=1, place=1, bytes=mib * MIB)
            cuda.call('cuGraphAddMemAllocNode', c.byref(node), graph, after, c.c_size_t(count),
                      c.byref(last))
        else:
            cuda.call('cuGraphAddMemFreeNode', c.byref(node), graph, after, c.c_size_t(count),
                      c.c_uint64(last.address))
    return graph, last.address
def executable(graph, flags=0):
    made = c.c_void_p()
    cuda.call('cuGraphInstantiateWithFlags', c.byref(made), graph, c.c_uint64(flags))
    return made
def left():
    return cuda.memory()[0] // MIB
"""
)


def test_charges_memory_once_that_graph_nodes_use_in_turn(tenants):
    script = _GRAPHS + (
        """
graph, _ = chain(600, 0, 600, 0)
print(cuda.code('cuGraphLaunch', executable(graph), None), left())
"""
    )
    assert tenants(1000).run(script) == "0 400"


def test_relaunches_a_graph_that_frees_what_it_left(tenants):
    script = _GRAPHS + (
        """
made = executable(chain(600)[0], AUTO_FREE)
print([cuda.code('cuGraphLaunch', made, None) for _ in range(3)], left())
"""
    )
    assert tenants(1000).run(script) == "[0, 0, 0] 400"


def test_leaves_nothing_of_a_graph_that_does_not_fit(tenants, driver):
    tenant = tenants(1000)
    script = _GRAPHS + (
        """
made = executable(chain(600, 600)[0])
print([cuda.code('cuGraphLaunch', made, None) for _ in range(2)], left(), flush=True)
sys.stdin.readline()
"""
    )
    assert line(tenant.start(script)) == "[2, 2] 1000"
    assert driver.used_mib()[0] == 0
    assert tenant.figures.refused[0] == 2


def test_returns_trimmed_memory_to_the_share_at_once(tenants, driver):
    tenant = tenants(1000)
    script = _GRAPHS + (
        """
graph, address = chain(600)
cuda.call('cuGraphLaunch', executable(graph), None)
cuda.free(address)
print('freed', flush=True); sys.stdin.readline()
cuda.call('cuDeviceGraphMemTrim', 0)
print('trimmed', flush=True); sys.stdin.readline()
"""
    )
    process = tenant.start(script)
    assert line(process) == "freed"
    assert tenant.figures.used[0] == 600 * MIB
    tell(process)
    assert line(process) == "trimmed"
    assert (tenant.figures.used[0], driver.used_mib()[0]) == (0, 0)


def test_admits_no_graph_by_what_graphs_keep_and_give_up_for_it(tenants, driver):
    script = _GRAPHS + (
        """
cuda.call('cuGraphLaunch', executable(chain(400, 0)[0]), None)
cuda.call('cuCtxSynchronize')
cuda.allocate(500 * MIB)
print(left(), cuda.code('cuGraphLaunch', executable(chain(600)[0]), None), left(), flush=True)
sys.stdin.readline()
"""
    )
    process = tenants(1000).start(script)
    assert line(process) == "100 2 500"
    assert driver.used_mib()[0] == 500


def test_charges_the_memory_of_a_graph_on_every_gpu(tenants):
    script = _GRAPHS + (
        """
graph, _ = chain(600)
node, there = c.c_void_p(), Node(type=1, place=1, device=1, bytes=10 * MIB)
cuda.call('cuGraphAddMemAllocNode', c.byref(node), graph, None, c.c_size_t(0), c.byref(there))
print(cuda.code('cuGraphLaunch', executable(graph), None), left() <= 400,
      tried(lambda: cuda.allocate(500 * MIB)))
"""
    )
    assert tenants(1000, 1000).run(script) == "0 True 2"
