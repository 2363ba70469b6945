"""Graphs, built and captured, and launches that have more to them than grid and block."""

import array
import ctypes as c

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda, fails
from lab.driver_clients.cuda_structures import Configuration
from lab.driver_clients.vector_add import VECTOR_ADD

CAPTURE_UNSUPPORTED, TOO_LARGE = 900, 720


class KernelNode(c.Structure):
    """CUDA_KERNEL_NODE_PARAMS."""

    _fields_ = [("function", c.c_void_p), ("grid", c.c_uint * 3), ("block", c.c_uint * 3)]
    _fields_ += [("shared", c.c_uint), ("pointers", c.c_void_p), ("extra", c.c_void_p)]
    _fields_ += [("kernel", c.c_void_p), ("context", c.c_void_p)]


class FillNode(c.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = [("to", c.c_uint64), ("pitch", c.c_size_t), ("value", c.c_uint), ("width", c.c_uint)]
    _fields_ += [("columns", c.c_size_t), ("rows", c.c_size_t)]


class Attribute(c.Structure):
    _fields_ = [("which", c.c_int), ("unused", c.c_int), ("value", c.c_int), ("rest", c.c_int * 15)]


def floats(cuda: Cuda, pointer: int, count: int) -> list[float]:
    return list(array.array("f", cuda.download(pointer, 4 * count)))


def doubling(pointer: int, count: int) -> tuple[c.Array[c.c_void_p], list[object]]:
    """Return the arguments of a vector addition of memory to itself, and what keeps them alive."""
    values: list[object] = [*(c.c_uint64(pointer) for _ in range(3)), c.c_int(count)]
    return (c.c_void_p * 4)(*(c.addressof(value) for value in values)), values  # type: ignore[arg-type]


def launch_graph(cuda: Cuda, graph: c.c_void_p, times: int) -> c.c_void_p:
    executable = c.c_void_p()
    cuda.call("cuGraphInstantiateWithFlags", c.byref(executable), graph, c.c_uint64(0))
    for _ in range(times):
        cuda.call("cuGraphLaunch", executable, None)
    return executable


def test_launches_a_graph_that_was_built(gpu):
    function = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    memory, graph, fill, kernel = gpu.allocate(256), c.c_void_p(), c.c_void_p(), c.c_void_p()
    gpu.call("cuGraphCreate", c.byref(graph), c.c_uint(0))
    ones = FillNode(to=memory, value=0x3F800000, width=4, columns=64, rows=1)
    gpu.call("cuGraphAddMemsetNode", c.byref(fill), graph, None, c.c_size_t(0), c.byref(ones), None)
    pointers, kept = doubling(memory, 64)
    node = KernelNode(function=function.value, grid=(1, 1, 1), block=(64, 1, 1))
    node.pointers = c.addressof(pointers)
    after = (c.c_void_p * 1)(fill.value)
    add = ("cuGraphAddKernelNode_v2", c.byref(kernel), graph, after, c.c_size_t(1), c.byref(node))
    gpu.call(*add)
    executable = launch_graph(gpu, graph, 2)
    assert floats(gpu, memory, 64) == [2.0] * 64
    half, kept_too = doubling(memory, 32)
    node.pointers = c.addressof(half)
    gpu.call("cuGraphExecKernelNodeSetParams_v2", executable, kernel, c.byref(node))
    gpu.call("cuGraphLaunch_ptsz", executable, None)
    assert floats(gpu, memory, 64) == [2.0] * 32 + [1.0] * 32
    count = c.c_size_t()
    gpu.call("cuGraphGetNodes", graph, None, c.byref(count))
    assert count.value == 2
    node.block[0] = 2000
    with fails(codes.INVALID_VALUE):
        gpu.call(*add)
    gpu.call("cuGraphDestroy", graph)
    with fails(codes.INVALID_VALUE):
        gpu.call(*add)
    gpu.call("cuGraphExecDestroy", executable)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuGraphLaunch", executable, None)
    assert kept
    assert kept_too


def test_launches_a_graph_that_was_captured(gpu):
    function = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    memory, stream, other = gpu.allocate(256), c.c_void_p(), c.c_void_p()
    graph, event, status = c.c_void_p(), c.c_void_p(), c.c_int()
    gpu.call("cuStreamCreate", c.byref(stream), c.c_uint(1))
    gpu.call("cuStreamCreate", c.byref(other), c.c_uint(1))
    gpu.call("cuEventCreate", c.byref(event), c.c_uint(0))
    gpu.call("cuStreamBeginCapture_v2", stream, 0)
    gpu.call("cuMemsetD32Async", c.c_uint64(memory), 0x3F800000, c.c_size_t(64), stream)
    gpu.call("cuEventRecord", event, stream)
    gpu.call("cuStreamWaitEvent", other, event, c.c_uint(0))
    gpu.call("cuStreamIsCapturing", other, c.byref(status))
    assert status.value == 1
    pointers, kept = doubling(memory, 64)
    sizes = [c.c_uint(size) for size in (1, 1, 1, 64, 1, 1, 0)]
    gpu.call("cuLaunchKernel", function, *sizes, other, pointers, None)
    gpu.call("cuEventRecord", event, other)
    gpu.call("cuStreamWaitEvent", stream, event, c.c_uint(0))
    gpu.call("cuStreamEndCapture", stream, c.byref(graph))
    assert floats(gpu, memory, 64) == [0.0] * 64
    launch_graph(gpu, graph, 1)
    assert floats(gpu, memory, 64) == [2.0] * 64
    with fails(401):
        gpu.call("cuStreamEndCapture", stream, c.byref(graph))
    with fails(CAPTURE_UNSUPPORTED):
        gpu.call("cuStreamBeginCapture_v2", None, 0)
    assert kept


def test_accepts_launches_with_attributes(gpu):
    function = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    memory = gpu.upload(array.array("f", range(64)).tobytes())
    pointers, kept = doubling(memory, 64)
    together = Attribute(which=2, value=1)
    how = Configuration(grid=(1, 1, 1), block=(64, 1, 1), count=1)
    how.attributes = c.addressof(together)
    gpu.call("cuLaunchKernelEx", c.byref(how), function, pointers, None)
    sizes = [c.c_uint(size) for size in (1, 1, 1, 64, 1, 1, 0)]
    gpu.call("cuLaunchCooperativeKernel", function, *sizes, None, pointers)
    assert floats(gpu, memory, 3) == [0.0, 4.0, 8.0]
    how.grid[0] = 100_000
    with fails(TOO_LARGE):
        gpu.call("cuLaunchKernelEx", c.byref(how), function, pointers, None)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuLaunchKernelEx", None, function, pointers, None)
    assert kept


def test_exports_names_for_a_stream_per_thread(gpu):
    pointer, status = c.c_void_p(), c.c_int()
    for flags, suffix in ((1, ""), (2, "_ptsz")):
        get = ("cuGetProcAddress_v2", b"cuLaunchKernel", c.byref(pointer), 12000)
        gpu.call(*get, c.c_uint64(flags), c.byref(status))
        address = c.cast(getattr(gpu.library, f"cuLaunchKernel{suffix}"), c.c_void_p).value
        assert pointer.value == address
    gpu.call(
        "cuGetProcAddress_v2", b"cuMemcpy", c.byref(pointer), 12000, c.c_uint64(2), c.byref(status)
    )
    assert pointer.value == c.cast(gpu.library.cuMemcpy_ptds, c.c_void_p).value


def test_keeps_objects_of_the_program_alive_in_graphs(gpu):
    ended, graph, copy, executable = [], c.c_void_p(), c.c_void_p(), c.c_void_p()
    destroy = c.CFUNCTYPE(None, c.c_void_p)(ended.append)
    thing, move = c.c_void_p(), c.c_uint(1)
    create = (
        "cuUserObjectCreate",
        c.byref(thing),
        c.c_void_p(5),
        destroy,
        c.c_uint(2),
        c.c_uint(1),
    )
    gpu.call(*create)
    gpu.call("cuGraphCreate", c.byref(graph), c.c_uint(0))
    gpu.call("cuGraphRetainUserObject", graph, thing, c.c_uint(1), move)
    gpu.call("cuUserObjectRelease", thing, c.c_uint(1))
    gpu.call("cuGraphInstantiateWithFlags", c.byref(executable), graph, c.c_uint64(0))
    gpu.call("cuGraphClone", c.byref(copy), graph)
    gpu.call("cuGraphDestroy", graph)
    gpu.call("cuGraphExecDestroy", executable)
    assert ended == []
    gpu.call("cuGraphReleaseUserObject", copy, thing, c.c_uint(1))
    assert ended == [5]
    with fails(codes.INVALID_VALUE):
        gpu.call("cuUserObjectRelease", thing, c.c_uint(1))
    gpu.call("cuGraphDestroy", copy)
