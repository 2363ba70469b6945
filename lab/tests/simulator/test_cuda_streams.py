"""Streams: each in its own order, and one that waits holds up no other."""

import ctypes as c
import random
import threading

import pytest

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda, fails
from lab.driver_clients.driver_root import eventually
from lab.driver_clients.sleeper import Sleeper

NOT_READY, NOT_PERMITTED = 600, 800
REFUSED_BY_CAPTURES = {0, 900, 901, 904, 906, 907}
AT_LEAST, EQUAL, AND, NOR = 0, 1, 2, 3
PER_THREAD = c.c_void_p(2)
SOON = 30  # seconds: long enough for any machine, and the tests fail instead of hanging
HostFunction = c.CFUNCTYPE(None, c.c_void_p)


class Gate:
    """A host function in a stream that ends when the host lets it."""

    def __init__(self, gpu: Cuda, stream: c.c_void_p | None, name: str = "cuLaunchHostFunc"):
        self.entered, self.open = threading.Event(), threading.Event()
        self.function = HostFunction(self._wait)
        gpu.call(name, stream, self.function, None)

    def _wait(self, _argument: object) -> None:
        self.entered.set()
        self.open.wait(SOON)


@pytest.fixture
def word(gpu) -> int:
    """Give a word of device memory that is 0."""
    return gpu.upload(bytes(8))


def write(gpu: Cuda, stream: c.c_void_p | None, where: int, value: int, suffix: str = "") -> None:
    fill = "cuMemsetD32Async" + suffix
    gpu.call(fill, c.c_uint64(where), c.c_uint(value), c.c_size_t(1), stream)


def read(where: int) -> int:
    """Read a word as the device sees it now; the memory is the process's own."""
    return c.c_uint32.from_address(where).value


def test_holds_up_only_its_own_stream_by_a_host_function(gpu, word):
    held, free = gpu.stream(), gpu.stream()
    gate = Gate(gpu, held)
    write(gpu, held, word, 5)
    assert gate.entered.wait(SOON)
    write(gpu, free, word + 4, 7)
    gpu.call("cuStreamSynchronize", free)
    assert (read(word), read(word + 4)) == (0, 7)
    assert gpu.code("cuStreamQuery", held) == NOT_READY
    assert gpu.code("cuStreamQuery", free) == 0
    gate.open.set()
    gpu.call("cuCtxSynchronize")
    assert read(word) == 5
    assert gpu.code("cuStreamQuery", held) == 0


def test_runs_host_functions_in_the_order_of_their_stream(gpu):
    order: list[int] = []
    stream = gpu.stream()
    functions = [HostFunction(lambda _, number=n: order.append(number)) for n in range(20)]
    gate = Gate(gpu, stream)
    for function in functions:
        gpu.call("cuLaunchHostFunc", stream, function, None)
    assert order == []
    gate.open.set()
    gpu.call("cuStreamSynchronize", stream)
    assert order == list(range(20))


def test_runs_a_host_function_after_the_gpu_time_before_it(gpu):
    sleeper, seen = Sleeper(gpu), []
    function = HostFunction(lambda _: seen.append(gpu.code("cuEventQuery", None)))
    sleeper.start(300_000_000)
    gpu.call("cuLaunchHostFunc", None, function, None)
    assert seen == []
    gpu.call("cuCtxSynchronize")
    # And it must not call the driver.
    assert seen == [NOT_PERMITTED]


def test_passes_its_stream_to_a_callback(gpu):
    seen, stream = [], gpu.stream()
    kind = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_void_p)
    callback = kind(lambda where, error, argument: seen.append((where, error, argument)))
    gpu.call("cuStreamAddCallback", stream, callback, c.c_void_p(9), c.c_uint(0))
    gpu.call("cuStreamSynchronize", stream)
    assert seen == [(stream.value, 0, 9)]


def test_waits_in_a_stream_for_a_value_that_another_writes(gpu, word):
    held, free = gpu.stream(), gpu.stream()
    wait = ("cuStreamWaitValue32", held, c.c_uint64(word), c.c_uint(3), c.c_uint(AT_LEAST))
    gpu.call(*wait)
    write(gpu, held, word + 4, 1)
    gpu.call("cuStreamWriteValue32", free, c.c_uint64(word), c.c_uint(2), c.c_uint(0))
    gpu.call("cuStreamSynchronize", free)
    assert gpu.code("cuStreamQuery", held) == NOT_READY
    assert read(word + 4) == 0
    gpu.call("cuStreamWriteValue32_v2", free, c.c_uint64(word), c.c_uint(3), c.c_uint(0))
    gpu.call("cuCtxSynchronize")
    assert read(word + 4) == 1
    with fails(codes.INVALID_VALUE):
        gpu.call("cuStreamWaitValue32", held, c.c_uint64(word + 2), c.c_uint(3), c.c_uint(0))


def test_waits_in_a_stream_for_a_value_that_the_host_writes(gpu):
    pointer, stream = c.c_void_p(), gpu.stream()
    gpu.call("cuMemHostAlloc", c.byref(pointer), c.c_size_t(8), c.c_uint(0))
    value = c.c_uint64.from_address(pointer.value or 0)
    value.value = 0
    wide = c.c_uint64(1 << 40)
    gpu.call("cuStreamWaitValue64_v2", stream, pointer, wide, c.c_uint(AND))
    assert gpu.code("cuStreamQuery", stream) == NOT_READY
    value.value = 1 << 40
    gpu.call("cuStreamSynchronize", stream)


@pytest.mark.parametrize(
    ("condition", "wanted", "before", "after"),
    [
        (AT_LEAST, 2, 0xFFFFFFFF, 2),  # cyclic: 2 comes after -1
        (EQUAL, 6, 5, 6),
        (AND, 0b100, 0b011, 0b110),
        (NOR, 0xFFFFFFF0, 0xF, 0xE),
    ],
)
def test_supports_the_conditions_of_a_wait(gpu, word, condition, wanted, before, after):
    stream, other = gpu.stream(), gpu.stream()
    write(gpu, other, word, before)
    wait = ("cuStreamWaitValue32", stream, c.c_uint64(word), c.c_uint(wanted), c.c_uint(condition))
    gpu.call(*wait)
    assert gpu.code("cuStreamQuery", stream) == NOT_READY
    write(gpu, other, word, after)
    gpu.call("cuStreamSynchronize", stream)
    gpu.call(*wait)
    assert gpu.code("cuStreamQuery", stream) == 0


def test_runs_a_batch_of_waits_and_writes(gpu, word):
    stream, other = gpu.stream(), gpu.stream()
    batch = (c.c_uint64 * 12)()
    batch[0:4] = [1, word, 4, EQUAL]  # wait until the word is 4
    batch[6:10] = [2, word + 4, 8, 0]  # then write the next
    gpu.call("cuStreamBatchMemOp", stream, c.c_uint(2), batch, c.c_uint(0))
    assert read(word + 4) == 0
    write(gpu, other, word, 4)
    gpu.call("cuStreamSynchronize", stream)
    assert read(word + 4) == 8
    batch[0] = 9
    with fails(codes.INVALID_VALUE):
        gpu.call("cuStreamBatchMemOp", stream, c.c_uint(2), batch, c.c_uint(0))


def test_orders_streams_by_events(gpu, word):
    first, second, third = gpu.stream(), gpu.stream(), gpu.stream()
    event = gpu.event()
    gate = Gate(gpu, first)
    write(gpu, first, word, 1)
    gpu.call("cuEventRecord", event, first)
    gpu.call("cuStreamWaitEvent", second, event, c.c_uint(0))
    write(gpu, second, word, 2)
    # The second stream waits for the record of that time, not for this later one.
    gpu.call("cuEventRecord", event, third)
    assert gpu.code("cuEventQuery", event) == 0
    assert gpu.code("cuStreamQuery", second) == NOT_READY
    gpu.call("cuEventRecord", event, second)
    assert gpu.code("cuEventQuery", event) == NOT_READY
    gpu.call("cuEventDestroy_v2", gpu.event())
    gate.open.set()
    gpu.call("cuEventSynchronize", event)
    assert read(word) == 2


def test_completes_an_event_of_an_idle_stream_beside_busy_ones(gpu):
    busy, idle, event = Sleeper(gpu), gpu.stream(), gpu.event()
    busy.start(400_000_000)
    gpu.call("cuEventRecord", event, idle)
    assert gpu.code("cuEventQuery", event) == 0
    assert gpu.code("cuStreamQuery", idle) == 0
    assert gpu.code("cuStreamQuery", None) == NOT_READY


@pytest.mark.parametrize(("flags", "waits"), [(0, True), (1, False)])
def test_waits_in_the_default_stream_for_blocking_streams(gpu, word, flags, waits):
    stream = gpu.stream(flags)
    gate = Gate(gpu, stream)
    write(gpu, None, word, 1)
    assert read(word) == (0 if waits else 1)
    gate.open.set()
    gpu.call("cuCtxSynchronize")
    assert read(word) == 1
    gate = Gate(gpu, None)
    write(gpu, stream, word, 2)
    assert read(word) == (1 if waits else 2)
    gate.open.set()
    gpu.call("cuCtxSynchronize")
    assert read(word) == 2


def test_keeps_default_streams_of_threads_independent(gpu, word):
    gate = Gate(gpu, None, "cuLaunchHostFunc_ptsz")
    context = c.c_void_p()
    gpu.call("cuCtxGetCurrent", c.byref(context))

    def work() -> None:
        gpu.call("cuCtxSetCurrent", context)
        write(gpu, None, word, 3, "_ptsz")
        gpu.call("cuStreamSynchronize_ptsz", None)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(SOON)
    assert not thread.is_alive()
    assert read(word) == 3
    assert gpu.code("cuStreamQuery", PER_THREAD) == NOT_READY
    gate.open.set()
    gpu.call("cuStreamSynchronize", PER_THREAD)


def test_copies_to_the_host_after_what_the_stream_holds(gpu, word):
    stream, target = gpu.stream(0), c.create_string_buffer(4)
    gate = Gate(gpu, stream)
    write(gpu, stream, word, 77)
    copy = ("cuMemcpyDtoHAsync_v2", target, c.c_uint64(word), c.c_size_t(4), stream)
    gpu.call(*copy)
    assert target.raw == bytes(4)
    threading.Timer(0.05, gate.open.set).start()
    assert gpu.download(word, 4) == b"\x4d\0\0\0"  # the default stream waits for the other
    assert target.raw == b"\x4d\0\0\0"


def test_finishes_the_work_of_a_destroyed_stream(gpu, word):
    stream = gpu.stream()
    gate = Gate(gpu, stream)
    write(gpu, stream, word, 1)
    gpu.call("cuStreamDestroy_v2", stream)
    assert gpu.code("cuStreamQuery", stream) == codes.INVALID_HANDLE
    assert read(word) == 0
    gate.open.set()
    gpu.call("cuCtxSynchronize")
    assert read(word) == 1


def test_frees_memory_in_the_order_of_its_stream(gpu):
    stream, pointer = gpu.stream(), c.c_uint64()
    gpu.call("cuMemAllocAsync", c.byref(pointer), c.c_size_t(4096), stream)
    gate = Gate(gpu, stream)
    write(gpu, stream, pointer.value, 1)
    gpu.call("cuMemFreeAsync", pointer, stream)
    write(gpu, gpu.stream(), pointer.value, 2)  # it is still there
    gate.open.set()
    gpu.call("cuStreamSynchronize", stream)
    fill = ("cuMemsetD32Async", pointer, c.c_uint(1), c.c_size_t(1), stream)
    assert gpu.code(*fill) == codes.INVALID_VALUE


def test_ends_a_context_with_work_in_its_streams(gpu, word):
    context = gpu.context()
    free = gpu.memory()[0]
    stream, event = gpu.stream(), gpu.event()
    pointer = gpu.allocate(1 << 20)
    gpu.call("cuStreamWaitValue32", stream, c.c_uint64(pointer), c.c_uint(3), c.c_uint(EQUAL))
    write(gpu, stream, word, 1)
    gpu.call("cuEventRecord", event, stream)
    gpu.call("cuCtxDestroy_v2", context)
    assert gpu.memory()[0] == free
    assert read(word) == 0
    gpu.call("cuCtxSynchronize")


def test_blocks_no_stream_by_an_event_of_an_ending_context(gpu):
    stream, context = gpu.stream(), c.c_void_p()
    gpu.call("cuCtxGetCurrent", c.byref(context))
    other = gpu.context()
    held, event, pointer = gpu.stream(), gpu.event(), gpu.allocate(8)
    gpu.call("cuStreamWaitValue32", held, c.c_uint64(pointer), c.c_uint(3), c.c_uint(EQUAL))
    gpu.call("cuEventRecord", event, held)
    gpu.call("cuCtxSetCurrent", context)
    gpu.call("cuStreamWaitEvent", stream, event, c.c_uint(0))
    assert gpu.code("cuStreamQuery", stream) == NOT_READY
    gpu.call("cuCtxDestroy_v2", other)
    assert eventually(lambda: gpu.code("cuStreamQuery", stream) == 0, SOON)


def test_destroys_a_graph_that_waits_for_its_launch(gpu):
    stream, graph, executable = gpu.stream(), c.c_void_p(), c.c_void_p()
    pointer = c.c_uint64()
    gpu.call("cuStreamBeginCapture_v2", stream, 0)
    gpu.call("cuMemAllocAsync", c.byref(pointer), c.c_size_t(4), stream)
    write(gpu, stream, pointer.value, 6)
    gpu.call("cuStreamEndCapture", stream, c.byref(graph))
    gpu.call("cuGraphInstantiateWithFlags", c.byref(executable), graph, c.c_uint64(0))
    gate = Gate(gpu, stream)
    gpu.call("cuGraphLaunch", executable, stream)
    gpu.call("cuGraphExecDestroy", executable)
    gpu.call("cuGraphDestroy", graph)
    gate.open.set()
    gpu.call("cuStreamSynchronize", stream)
    assert gpu.download(pointer.value, 4) == b"\6\0\0\0"


class Chaos(threading.Thread):
    """A thread that does this and that in streams of its own."""

    def __init__(self, gpu: Cuda, context: c.c_void_p, number: int, word: int):
        super().__init__()
        self.gpu, self.context, self.word = gpu, context, word
        self.random = random.Random(number)
        self.called = 0
        self.function = HostFunction(self._count)
        self.refused: set[int] = set()

    def _count(self, _argument: object) -> None:
        self.called += 1

    def attempt(self, name: str, *arguments: object) -> bool:
        code = self.gpu.code(name, *arguments)
        self.refused.add(code)
        return code == 0

    def run(self) -> None:
        self.gpu.call("cuCtxSetCurrent", self.context)
        self.streams = [self.gpu.stream(n % 2) for n in range(3)]
        self.events = [self.gpu.event() for _ in range(3)]
        deeds = [self.wait, self.replace, self.allocate, self.capture, self.values]
        for _ in range(250):
            self.random.choice(deeds)(*self.random.sample(range(3), 2))

    def wait(self, number: int, other: int) -> None:
        self.attempt("cuLaunchHostFunc", self.streams[number], self.function, None)
        self.attempt("cuEventRecord", self.events[number], self.streams[number])
        self.attempt("cuStreamWaitEvent", self.streams[other], self.events[number], c.c_uint(0))
        self.attempt("cuStreamSynchronize", self.streams[other])

    def replace(self, number: int, other: int) -> None:
        self.gpu.call("cuStreamDestroy_v2", self.streams[number])
        self.gpu.call("cuEventDestroy_v2", self.events[other])
        self.streams[number], self.events[other] = self.gpu.stream(), self.gpu.event()

    def allocate(self, number: int, _other: int) -> None:
        pointer = c.c_uint64()
        if self.attempt(
            "cuMemAllocAsync", c.byref(pointer), c.c_size_t(4096), self.streams[number]
        ):
            write(self.gpu, self.streams[number], pointer.value, 1)
            self.attempt("cuMemFreeAsync", pointer, self.streams[number])

    def capture(self, number: int, other: int) -> None:
        graph, executable, stream = c.c_void_p(), c.c_void_p(), self.streams[number]
        self.gpu.call("cuStreamBeginCapture_v2", stream, self.random.randrange(3))
        self.wait(number, other)  # it spoils the capture
        self.attempt("cuStreamEndCapture", stream, c.byref(graph))
        self.gpu.call("cuStreamBeginCapture_v2", stream, 2)
        self.allocate(number, other)
        if not self.attempt("cuStreamEndCapture", stream, c.byref(graph)):
            return
        make = ("cuGraphInstantiateWithFlags", c.byref(executable), graph, c.c_uint64(0))
        self.gpu.call(*make)
        self.attempt("cuGraphLaunch", executable, self.streams[other])
        self.gpu.call("cuGraphExecDestroy", executable)
        self.gpu.call("cuGraphDestroy", graph)

    def values(self, number: int, other: int) -> None:
        word = c.c_uint64(self.word)
        wait = ("cuStreamWaitValue32", self.streams[number], word, c.c_uint(7), c.c_uint(EQUAL))
        self.attempt(*wait)
        self.attempt("cuStreamWriteValue32", self.streams[other], word, c.c_uint(7), c.c_uint(0))


def test_keeps_threads_in_their_own_streams_independent(gpu):
    free, context = gpu.memory()[0], c.c_void_p()
    gpu.call("cuCtxGetCurrent", c.byref(context))
    words = gpu.upload(bytes(64))
    threads = [Chaos(gpu, context, n, words + 8 * n) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * SOON)
        assert not thread.is_alive()
    write(gpu, None, words, 0)
    gpu.call("cuCtxSynchronize")
    assert all(thread.called > 0 for thread in threads)
    # Captures of other threads refuse this and that; nothing else goes wrong.
    assert set().union(*(thread.refused for thread in threads)) <= REFUSED_BY_CAPTURES
    gpu.free(words)
    gpu.call("cuDeviceGraphMemTrim", 0)
    assert gpu.memory()[0] == free
