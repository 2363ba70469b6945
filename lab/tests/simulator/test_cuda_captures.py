"""Captures: what they take in, what they refuse, and what spoils them."""

import ctypes as c
import threading
from collections.abc import Callable

import pytest

from lab.driver_clients.cuda import Cuda, fails

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2
NONE, ACTIVE, INVALIDATED = 0, 1, 2
UNSUPPORTED, SPOILT, MERGE, UNMATCHED, UNJOINED = 900, 901, 902, 903, 904
ISOLATION, IMPLICIT, CAPTURED_EVENT, WRONG_THREAD = 905, 906, 907, 908
SET = 1


def begin(gpu: Cuda, mode: int = GLOBAL, flags: int = 1) -> c.c_void_p:
    stream = gpu.stream(flags)
    gpu.call("cuStreamBeginCapture_v2", stream, mode)
    return stream


def end(gpu: Cuda, stream: c.c_void_p) -> int:
    return gpu.code("cuStreamEndCapture", stream, c.byref(c.c_void_p()))


def fill(gpu: Cuda, stream: c.c_void_p | None, where: int, value: int = 1) -> int:
    return gpu.code("cuMemsetD32Async", c.c_uint64(where), value, c.c_size_t(1), stream)


def status(gpu: Cuda, stream: c.c_void_p | None) -> int:
    value = c.c_int(-1)
    gpu.call("cuStreamIsCapturing", stream, c.byref(value))
    return value.value


def in_thread(gpu: Cuda, what: Callable[[], object]) -> object:
    """Run something in another thread, with the same context."""
    context, results = c.c_void_p(), []
    gpu.call("cuCtxGetCurrent", c.byref(context))

    def work() -> None:
        gpu.call("cuCtxSetCurrent", context)
        results.append(what())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return results[0]


def set_mode(gpu: Cuda, mode: int) -> int:
    value = c.c_int(mode)
    gpu.call("cuThreadExchangeStreamCaptureMode", c.byref(value))
    return value.value


def count(gpu: Cuda, graph: c.c_void_p) -> int:
    nodes = c.c_size_t()
    gpu.call("cuGraphGetNodes", graph, None, c.byref(nodes))
    return nodes.value


def launch(gpu: Cuda, graph: c.c_void_p) -> None:
    executable = c.c_void_p()
    gpu.call("cuGraphInstantiateWithFlags", c.byref(executable), graph, c.c_uint64(0))
    gpu.call("cuGraphLaunch", executable, None)
    gpu.call("cuCtxSynchronize")


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_invalidates_captures_of_every_mode_on_a_context_synchronisation(gpu, mode):
    memory, stream = gpu.allocate(4), begin(gpu, mode)
    with fails(UNSUPPORTED):
        gpu.call("cuCtxSynchronize")
    assert status(gpu, stream) == INVALIDATED
    assert fill(gpu, stream, memory) == SPOILT
    assert end(gpu, stream) == SPOILT
    assert status(gpu, stream) == NONE
    gpu.call("cuCtxSynchronize")
    assert fill(gpu, stream, memory) == 0


@pytest.mark.parametrize("name", ["cuStreamSynchronize", "cuStreamQuery"])
def test_refuses_to_wait_for_a_capturing_stream(gpu, name):
    stream = begin(gpu, RELAXED)
    with fails(UNSUPPORTED):
        gpu.call(name, stream)
    assert end(gpu, stream) == SPOILT


def test_refuses_to_wait_for_a_captured_event(gpu):
    stream, event = begin(gpu, RELAXED), gpu.event()
    gpu.call("cuEventRecord", event, stream)
    for name in ("cuEventQuery", "cuEventSynchronize"):
        with fails(CAPTURED_EVENT):
            gpu.call(name, event)
    assert end(gpu, stream) == SPOILT
    with fails(CAPTURED_EVENT):
        gpu.call("cuEventQuery", event)
    gpu.call("cuEventRecord", event, stream)
    gpu.call("cuEventQuery", event)


UNSAFE = {
    "cuMemAlloc_v2": lambda gpu, _: gpu.code(
        "cuMemAlloc_v2", c.byref(c.c_uint64()), c.c_size_t(16)
    ),
    "cuMemAllocManaged": lambda gpu, _: gpu.code(
        "cuMemAllocManaged", c.byref(c.c_uint64()), c.c_size_t(16), c.c_uint(1)
    ),
    "cuMemHostAlloc": lambda gpu, _: gpu.code(
        "cuMemHostAlloc", c.byref(c.c_void_p()), c.c_size_t(16), c.c_uint(0)
    ),
    "cuMemFree_v2": lambda gpu, memory: gpu.code("cuMemFree_v2", c.c_uint64(memory)),
    "cuMemFree_v2 of nothing": lambda gpu, _: gpu.code("cuMemFree_v2", c.c_uint64(0)),
    "cuMemcpyDtoH_v2": lambda gpu, memory: gpu.code(
        "cuMemcpyDtoH_v2", c.create_string_buffer(4), c.c_uint64(memory), c.c_size_t(4)
    ),
    "cuEventQuery": lambda gpu, _: gpu.code("cuEventQuery", gpu.event()),
    "cuModuleLoadData": lambda gpu, _: gpu.code(
        "cuModuleLoadData", c.byref(c.c_void_p()), b".version 7.0\n.target sm_70\n\0"
    ),
}


@pytest.mark.parametrize("name", UNSAFE)
def test_invalidates_a_capture_by_calls_it_does_not_see(gpu, name):
    memory, stream = gpu.allocate(4), begin(gpu)
    assert UNSAFE[name](gpu, memory) == UNSUPPORTED
    assert end(gpu, stream) == SPOILT
    assert UNSAFE[name](gpu, memory) != UNSUPPORTED


@pytest.mark.parametrize(
    ("capture", "own", "same_thread", "refused"),
    [
        (GLOBAL, GLOBAL, True, True),
        (GLOBAL, GLOBAL, False, True),
        (GLOBAL, THREAD_LOCAL, True, True),
        (GLOBAL, THREAD_LOCAL, False, False),
        (GLOBAL, RELAXED, True, False),
        (GLOBAL, RELAXED, False, False),
        (THREAD_LOCAL, GLOBAL, True, True),
        (THREAD_LOCAL, GLOBAL, False, False),
        (RELAXED, GLOBAL, True, False),
        (RELAXED, GLOBAL, False, False),
    ],
)
def test_refuses_allocations_by_the_mode_of_the_capture(gpu, capture, own, same_thread, refused):
    stream = begin(gpu, capture)

    def allocate() -> int:
        before = set_mode(gpu, own)
        code = gpu.code("cuMemAlloc_v2", c.byref(c.c_uint64()), c.c_size_t(16))
        set_mode(gpu, before)
        return code

    code = allocate() if same_thread else in_thread(gpu, allocate)
    assert code == (UNSUPPORTED if refused else 0)
    assert end(gpu, stream) == (SPOILT if refused else 0)


def test_refuses_the_default_stream_while_a_blocking_stream_captures(gpu):
    memory, stream = gpu.allocate(4), begin(gpu, RELAXED, flags=0)
    assert gpu.code("cuStreamIsCapturing", None, c.byref(c.c_int())) == IMPLICIT
    assert status(gpu, stream) == ACTIVE  # that question does no harm
    assert fill(gpu, None, memory) == IMPLICIT
    assert status(gpu, stream) == INVALIDATED
    assert end(gpu, stream) == SPOILT
    stream = begin(gpu, RELAXED, flags=1)
    assert status(gpu, None) == NONE
    assert fill(gpu, None, memory) == 0
    assert end(gpu, stream) == 0


def test_captures_a_threads_own_default_stream(gpu):
    memory, graph = gpu.upload(bytes(4)), c.c_void_p()
    gpu.call("cuStreamBeginCapture_v2_ptsz", None, RELAXED)
    name = "cuMemsetD32Async_ptsz"
    gpu.call(name, c.c_uint64(memory), 5, c.c_size_t(1), None)
    gpu.call("cuStreamEndCapture_ptsz", None, c.byref(graph))
    launch(gpu, graph)
    assert gpu.download(memory, 4) == b"\5\0\0\0"


def test_requires_work_of_another_stream_to_be_joined(gpu):
    memory, event = gpu.allocate(8), gpu.event()
    stream, other = begin(gpu), gpu.stream()
    gpu.call("cuEventRecord", event, stream)
    gpu.call("cuStreamWaitEvent", other, event, c.c_uint(0))
    assert fill(gpu, other, memory) == 0
    assert end(gpu, other) == UNMATCHED
    assert end(gpu, stream) == SPOILT
    gpu.call("cuStreamBeginCapture_v2", stream, GLOBAL)
    gpu.call("cuEventRecord", event, stream)
    gpu.call("cuStreamWaitEvent", other, event, c.c_uint(0))
    assert fill(gpu, other, memory) == 0
    assert end(gpu, stream) == UNJOINED
    assert (status(gpu, stream), status(gpu, other)) == (NONE, NONE)


def test_keeps_captures_apart(gpu):
    event, stream, other = gpu.event(), begin(gpu), gpu.stream()
    gpu.call("cuEventRecord", event, other)
    with fails(ISOLATION):
        gpu.call("cuStreamWaitEvent", stream, event, c.c_uint(0))
    assert end(gpu, stream) == SPOILT
    gpu.call("cuStreamBeginCapture_v2", stream, GLOBAL)
    gpu.call("cuStreamBeginCapture_v2", other, GLOBAL)
    gpu.call("cuEventRecord", event, other)
    with fails(MERGE):
        gpu.call("cuStreamWaitEvent", stream, event, c.c_uint(0))
    assert (end(gpu, stream), end(gpu, other)) == (SPOILT, SPOILT)


def test_ends_a_capture_only_in_the_thread_of_its_beginning(gpu):
    stream = begin(gpu, THREAD_LOCAL)
    assert in_thread(gpu, lambda: end(gpu, stream)) == WRONG_THREAD
    assert end(gpu, stream) == 0
    stream = begin(gpu, RELAXED)
    assert in_thread(gpu, lambda: end(gpu, stream)) == 0


def test_ends_the_capture_of_a_destroyed_stream(gpu):
    stream = begin(gpu)
    gpu.call("cuStreamDestroy_v2", stream)
    gpu.allocate(4)
    gpu.call("cuCtxSynchronize")


@pytest.mark.parametrize(("joined", "code"), [(True, 0), (False, UNJOINED)])
def test_destroys_a_stream_that_joined_a_capture(gpu, joined, code):
    memory, event, stream, other = gpu.allocate(4), gpu.event(), begin(gpu), gpu.stream()
    gpu.call("cuEventRecord", event, stream)
    gpu.call("cuStreamWaitEvent", other, event, c.c_uint(0))
    assert fill(gpu, other, memory) == 0
    if joined:
        gpu.call("cuEventRecord", event, other)
        gpu.call("cuStreamWaitEvent", stream, event, c.c_uint(0))
    gpu.call("cuStreamDestroy_v2", other)
    assert end(gpu, stream) == code


def test_captures_into_an_existing_graph(gpu):
    memory, graph, node, ended = gpu.upload(bytes(8)), c.c_void_p(), c.c_void_p(), c.c_void_p()
    gpu.call("cuGraphCreate", c.byref(graph), c.c_uint(0))
    gpu.call("cuGraphAddEmptyNode", c.byref(node), graph, None, c.c_size_t(0))
    stream, after = gpu.stream(), (c.c_void_p * 1)(node.value)
    begin_to = ("cuStreamBeginCaptureToGraph", stream, graph, after, None, c.c_size_t(1), RELAXED)
    gpu.call(*begin_to)
    assert fill(gpu, stream, memory, 6) == 0
    with fails(401):
        gpu.call("cuGraphDestroy", graph)
    gpu.call("cuStreamEndCapture", stream, c.byref(ended))
    assert (ended.value, count(gpu, graph)) == (graph.value, 2)
    last = (c.c_void_p * 2)()
    gpu.call("cuGraphGetNodes", graph, last, c.byref(c.c_size_t(2)))
    dependencies, edges = (c.c_void_p * 1)(), c.c_size_t(1)
    gpu.call("cuGraphNodeGetDependencies", c.c_void_p(last[1]), dependencies, c.byref(edges))
    assert (dependencies[0], edges.value) == (node.value, 1)
    launch(gpu, graph)
    assert gpu.download(memory, 4) == b"\6\0\0\0"
    # A capture that fails leaves the graph to its owner.
    gpu.call(*begin_to)
    assert gpu.code("cuCtxSynchronize") == UNSUPPORTED
    assert end(gpu, stream) == SPOILT
    gpu.call("cuGraphDestroy", graph)


def test_reports_the_state_of_a_capture(gpu):
    stream, memory = gpu.stream(), gpu.allocate(4)
    state, number, graph = c.c_int(), c.c_uint64(), c.c_void_p()
    nodes, size, edges = c.POINTER(c.c_void_p)(), c.c_size_t(), c.c_void_p(1)
    outputs = (c.byref(state), c.byref(number), c.byref(graph), c.byref(nodes))
    gpu.call("cuStreamGetCaptureInfo_v2", stream, *outputs, c.byref(size))
    assert state.value == NONE
    gpu.call("cuStreamBeginCapture_v2", stream, RELAXED)
    assert fill(gpu, stream, memory) == 0
    gpu.call("cuStreamGetCaptureInfo_v3", stream, *outputs, c.byref(edges), c.byref(size))
    assert (state.value, size.value, edges.value) == (ACTIVE, 1, None)
    assert count(gpu, graph) == 1
    # Without dependencies, the next node is a root.
    gpu.call("cuStreamUpdateCaptureDependencies", stream, None, c.c_size_t(0), c.c_uint(SET))
    assert fill(gpu, stream, memory) == 0
    gpu.call("cuGraphGetRootNodes", graph, None, c.byref(size))
    assert size.value == 2
    first, second = number.value, c.c_uint64()
    assert end(gpu, stream) == 0
    gpu.call("cuStreamBeginCapture_v2", stream, RELAXED)
    gpu.call("cuStreamGetCaptureInfo", stream, c.byref(state), c.byref(second))
    assert second.value != first
    assert end(gpu, stream) == 0


def test_runs_captured_waits_and_host_functions_at_the_launch(gpu):
    memory, stream, seen = gpu.upload(bytes(8)), gpu.stream(), []
    function = c.CFUNCTYPE(None, c.c_void_p)(lambda _: seen.append(1))
    gpu.call("cuStreamBeginCapture_v2", stream, RELAXED)
    gpu.call("cuLaunchHostFunc", stream, function, None)
    word = c.c_uint64(memory)
    gpu.call("cuStreamWriteValue32", stream, word, c.c_uint(4), c.c_uint(0))
    graph = c.c_void_p()
    gpu.call("cuStreamEndCapture", stream, c.byref(graph))
    assert (seen, gpu.download(memory, 4)) == ([], bytes(4))
    launch(gpu, graph)
    assert (seen, gpu.download(memory, 4)) == ([1], b"\4\0\0\0")


def test_launches_a_graph_within_a_graph(gpu):
    memory, stream, child = gpu.upload(bytes(8)), begin(gpu, RELAXED), c.c_void_p()
    assert fill(gpu, stream, memory, 3) == 0
    gpu.call("cuStreamEndCapture", stream, c.byref(child))
    graph, node, inner, copy = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_void_p()
    gpu.call("cuGraphCreate", c.byref(graph), c.c_uint(0))
    add = ("cuGraphAddChildGraphNode", c.byref(node), graph, None, c.c_size_t(0))
    gpu.call(*add, child)
    gpu.call("cuGraphDestroy", child)  # it was copied
    gpu.call("cuGraphChildGraphNodeGetGraph", node, c.byref(inner))
    assert count(gpu, inner) == 1
    gpu.call("cuGraphClone", c.byref(copy), graph)
    gpu.call("cuGraphDestroy", graph)
    launch(gpu, copy)
    assert gpu.download(memory, 4) == b"\3\0\0\0"
