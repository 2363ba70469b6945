"""Memory that graphs allocate: at the same address in each launch, and counted like any other."""

import ctypes as c

import pytest

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda, fails

USED, USED_HIGH, RESERVED, RESERVED_HIGH = 0, 1, 2, 3
AUTO_FREE = 1
NODE_ALLOCATE, NODE_FREE = 10, 11
MIB = 1 << 20


class AllocateNode(c.Structure):
    """CUDA_MEM_ALLOC_NODE_PARAMS."""

    _fields_ = [("type", c.c_int), ("handles", c.c_int), ("place", c.c_int), ("device", c.c_int)]
    _fields_ += [("rest", c.c_byte * 72), ("access", c.c_void_p), ("accesses", c.c_size_t)]
    _fields_ += [("bytes", c.c_size_t), ("address", c.c_uint64)]


def new_graph(gpu: Cuda) -> c.c_void_p:
    graph = c.c_void_p()
    gpu.call("cuGraphCreate", c.byref(graph), c.c_uint(0))
    return graph


def add_allocation(gpu: Cuda, graph: c.c_void_p, size: int) -> tuple[c.c_void_p, int]:
    node, wanted = c.c_void_p(), AllocateNode(type=1, place=1, bytes=size)
    after = (None, c.c_size_t(0), c.byref(wanted))
    gpu.call("cuGraphAddMemAllocNode", c.byref(node), graph, *after)
    return node, wanted.address


def add_free(gpu: Cuda, graph: c.c_void_p, after: c.c_void_p, address: int) -> c.c_void_p:
    node, nodes = c.c_void_p(), (c.c_void_p * 1)(after.value)
    free = ("cuGraphAddMemFreeNode", c.byref(node), graph, nodes, c.c_size_t(1))
    gpu.call(*free, c.c_uint64(address))
    return node


def instantiate(gpu: Cuda, graph: c.c_void_p, flags: int = 0) -> c.c_void_p:
    executable = c.c_void_p()
    gpu.call("cuGraphInstantiateWithFlags", c.byref(executable), graph, c.c_uint64(flags))
    return executable


def launch(gpu: Cuda, executable: c.c_void_p) -> None:
    gpu.call("cuGraphLaunch", executable, None)
    gpu.call("cuCtxSynchronize")


def figure(gpu: Cuda, which: int) -> int:
    value = c.c_uint64()
    gpu.call("cuDeviceGetGraphMemAttribute", 0, which, c.byref(value))
    return value.value


def free_mib(gpu: Cuda) -> int:
    return gpu.memory()[0] // MIB


def test_allocates_at_a_graph_launch_and_frees_at_a_trim(gpu):
    before, graph = free_mib(gpu), new_graph(gpu)
    node, address = add_allocation(gpu, graph, 100 * MIB)
    add_free(gpu, graph, node, address)
    executable = instantiate(gpu, graph)
    assert free_mib(gpu) == before
    with fails(codes.INVALID_VALUE):
        gpu.download(address, 4)
    launch(gpu, executable)
    # What graphs free stays reserved for them.
    assert free_mib(gpu) == before - 100
    assert (figure(gpu, USED), figure(gpu, USED_HIGH)) == (0, 100 * MIB)
    assert (figure(gpu, RESERVED), figure(gpu, RESERVED_HIGH)) == (100 * MIB, 100 * MIB)
    launch(gpu, executable)
    assert free_mib(gpu) == before - 100
    gpu.call("cuDeviceGraphMemTrim", 0)
    assert free_mib(gpu) == before
    assert (figure(gpu, RESERVED), figure(gpu, RESERVED_HIGH)) == (0, 100 * MIB)
    gpu.call("cuDeviceSetGraphMemAttribute", 0, RESERVED_HIGH, c.byref(c.c_uint64(0)))
    assert figure(gpu, RESERVED_HIGH) == 0
    with fails(codes.INVALID_VALUE):
        gpu.call("cuDeviceSetGraphMemAttribute", 0, USED, c.byref(c.c_uint64(0)))


class Node(c.Structure):
    """CUgraphNodeParams."""

    _fields_ = [("kind", c.c_int), ("reserved", c.c_int * 3), ("rest", c.c_byte * 240)]


def test_adds_nodes_of_every_kind_by_one_call(gpu):
    graph, node, wanted = new_graph(gpu), c.c_void_p(), Node(kind=NODE_ALLOCATE)
    allocation = AllocateNode.from_buffer(wanted, 16)
    allocation.type, allocation.place, allocation.bytes = 1, 1, MIB
    gpu.call("cuGraphAddNode", c.byref(node), graph, None, c.c_size_t(0), c.byref(wanted))
    address, after = allocation.address, (c.c_void_p * 1)(node.value)
    wanted = Node(kind=NODE_FREE)
    c.c_uint64.from_buffer(wanted, 16).value = address
    last = (None, c.c_size_t(1), c.byref(wanted))
    gpu.call("cuGraphAddNode_v2", c.byref(node), graph, after, *last)
    launch(gpu, instantiate(gpu, graph))
    assert (figure(gpu, USED), figure(gpu, USED_HIGH)) == (0, MIB)
    wanted.kind = 13  # conditional
    with fails(codes.NOT_SUPPORTED):
        gpu.call("cuGraphAddNode_v2", c.byref(node), graph, after, *last)


@pytest.mark.parametrize("free", ["cuMemFree_v2", "cuMemFreeAsync"])
def test_keeps_memory_beyond_the_graph_that_no_node_frees(gpu, free):
    before, graph = free_mib(gpu), new_graph(gpu)
    _, address = add_allocation(gpu, graph, 100 * MIB)
    executable = instantiate(gpu, graph)
    launch(gpu, executable)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuGraphLaunch", executable, None)
    gpu.call("cuGraphExecDestroy", executable)
    gpu.call("cuGraphDestroy", graph)
    gpu.call("cuMemsetD32_v2", c.c_uint64(address), 7, c.c_size_t(4))
    assert gpu.download(address, 4) == b"\7\0\0\0"
    gpu.call("cuDeviceGraphMemTrim", 0)
    assert free_mib(gpu) == before - 100
    gpu.call(free, c.c_uint64(address), *([None] if free == "cuMemFreeAsync" else []))
    assert figure(gpu, USED) == 0
    gpu.call("cuDeviceGraphMemTrim", 0)
    assert free_mib(gpu) == before


def test_launches_a_graph_that_frees_what_the_last_one_left(gpu):
    graph = new_graph(gpu)
    _, address = add_allocation(gpu, graph, MIB)
    executable = instantiate(gpu, graph, AUTO_FREE)
    launch(gpu, executable)
    gpu.call("cuMemsetD8_v2", c.c_uint64(address), 9, c.c_size_t(1))
    launch(gpu, executable)
    assert figure(gpu, USED) == MIB
    assert gpu.download(address, 1) == b"\0"  # it is new memory


def test_refuses_a_launch_without_memory(gpu):
    graph = new_graph(gpu)
    node, address = add_allocation(gpu, graph, 30 << 30)
    add_free(gpu, graph, node, address)
    executable = instantiate(gpu, graph)
    held = gpu.allocate(20 << 30)
    with fails(codes.OUT_OF_MEMORY):
        gpu.call("cuGraphLaunch", executable, None)
    gpu.free(held)
    launch(gpu, executable)


def test_shares_freed_memory_between_graphs(gpu):
    before = free_mib(gpu)
    for size in (100, 60, 80):
        graph = new_graph(gpu)
        node, address = add_allocation(gpu, graph, size * MIB)
        add_free(gpu, graph, node, address)
        launch(gpu, instantiate(gpu, graph))
    assert free_mib(gpu) == before - 100


def test_allocates_for_the_graph_in_a_capture(gpu):
    before, stream, graph = free_mib(gpu), gpu.stream(), c.c_void_p()
    first, second = c.c_uint64(), c.c_uint64()
    gpu.call("cuStreamBeginCapture_v2", stream, 0)
    for pointer in (first, second):
        gpu.call("cuMemAllocAsync", c.byref(pointer), c.c_size_t(50 * MIB), stream)
    gpu.call("cuMemsetD32Async", first, 5, c.c_size_t(1), stream)
    gpu.call("cuMemFreeAsync", second, stream)
    gpu.call("cuStreamEndCapture", stream, c.byref(graph))
    assert free_mib(gpu) == before
    nodes, count, kinds = (c.c_void_p * 4)(), c.c_size_t(4), []
    gpu.call("cuGraphGetNodes", graph, nodes, c.byref(count))
    for node in nodes:
        kind = c.c_int()
        gpu.call("cuGraphNodeGetType", c.c_void_p(node), c.byref(kind))
        kinds.append(kind.value)
    assert kinds == [NODE_ALLOCATE, NODE_ALLOCATE, 2, NODE_FREE]
    wanted, freed = AllocateNode(), c.c_uint64()
    gpu.call("cuGraphMemAllocNodeGetParams", c.c_void_p(nodes[0]), c.byref(wanted))
    gpu.call("cuGraphMemFreeNodeGetParams", c.c_void_p(nodes[3]), c.byref(freed))
    assert (wanted.address, wanted.bytes, wanted.device) == (first.value, 50 * MIB, 0)
    assert freed.value == second.value
    executable = instantiate(gpu, graph)
    launch(gpu, executable)
    assert gpu.download(first.value, 4) == b"\5\0\0\0"
    assert (figure(gpu, USED), free_mib(gpu)) == (50 * MIB, before - 100)


def test_refuses_misuse_of_graphs_with_memory(gpu):
    graph, other = new_graph(gpu), new_graph(gpu)
    node, address = add_allocation(gpu, graph, MIB)
    add_free(gpu, graph, node, address)
    with fails(codes.INVALID_VALUE):  # a second time
        add_free(gpu, graph, node, address)
    with fails(codes.INVALID_VALUE):  # another's memory
        add_free(gpu, graph, node, gpu.allocate(16))
    with fails(codes.NOT_SUPPORTED):
        gpu.call("cuGraphClone", c.byref(c.c_void_p()), graph)
    child = ("cuGraphAddChildGraphNode", c.byref(c.c_void_p()), other, None, c.c_size_t(0), graph)
    with fails(codes.NOT_SUPPORTED):
        gpu.call(*child)
    executable = instantiate(gpu, graph)
    with fails(codes.NOT_SUPPORTED):  # one executable at a time
        instantiate(gpu, graph)
    gpu.call("cuGraphExecDestroy", executable)
    instantiate(gpu, graph)


def test_frees_the_memory_of_graphs_with_the_context(gpu):
    free = free_mib(gpu)
    context = gpu.context()
    graph = new_graph(gpu)
    add_allocation(gpu, graph, 100 * MIB)
    executable = instantiate(gpu, graph)
    launch(gpu, executable)
    assert free_mib(gpu) == free - 100
    gpu.call("cuCtxDestroy_v2", context)
    assert (free_mib(gpu), figure(gpu, USED)) == (free, 0)
    launch(gpu, executable)
    assert free_mib(gpu) == free - 100


def test_shows_memory_of_graphs_and_modules_to_other_programs(install):
    driver = install()
    gpu = driver.cuda().init()
    gpu.context()
    graph, head = new_graph(gpu), ".version 7.0\n.target sm_75\n.address_size 64\n"
    add_allocation(gpu, graph, 100 * MIB)
    launch(gpu, instantiate(gpu, graph))
    gpu.module(f"{head}.global .b8 big[{20 * MIB}];")
    assert driver.used_mib() == [120]
    assert driver.smi("--query-compute-apps=used_memory", "--format=csv,noheader") == "120 MiB\n"
