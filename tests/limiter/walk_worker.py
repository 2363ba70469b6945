"""A tenant's process of the walk: takes orders line by line and answers each with one line."""

from __future__ import annotations

import ctypes as c
import os
import sys
import time
from collections.abc import Callable

from lab.driver_clients.cuda import Cuda, CudaError
from lab.driver_clients.cuda_structures import Properties, Shape
from lab.driver_clients.sleeper import Sleeper

MIB = 1 << 20
_RELAXED, _HEAP, _NOT_INITIALIZED, _NON_BLOCKING = 2, 2, 3, 1
_DEVICE_MEMORY = Properties(type=1, place=1)
_ZERO = c.c_uint64(0)
_PTX = ".version 7.0\n.target sm_70\n.address_size 64\n"


class Worker:
    """What one process holds, by number, with the way to give it back."""

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._sleeper = Sleeper(cuda)
        self._held: dict[int, Callable[[], None]] = {}
        self._numbers = 0
        self._lost_streams = 0

    def serve(self) -> None:
        """Follow orders until there are no more."""
        print("ready", flush=True)
        for order in sys.stdin:
            name, *arguments = order.split()
            try:
                answer = getattr(self, name)(*map(int, arguments))
            except CudaError as error:
                answer = -error.code
            print(answer, flush=True)

    def _keep(self, give_back: Callable[[], None]) -> int:
        self._numbers += 1
        self._held[self._numbers] = give_back
        return self._numbers

    def free(self, number: int) -> int:
        self._held.pop(number)()
        return 0

    def plain(self, mib: int) -> int:
        pointer = self._cuda.allocate(mib * MIB)
        return self._keep(lambda: self._cuda.free(pointer))

    def managed(self, mib: int) -> int:
        at = c.c_uint64()
        self._cuda.call("cuMemAllocManaged", c.byref(at), c.c_size_t(mib * MIB), c.c_uint(1))
        return self._keep(lambda: self._cuda.free(at.value))

    def array(self, mib: int) -> int:
        at = c.c_void_p()
        shape = Shape(width=1 << 16, height=mib * 4, format=0x20, channels=1)
        self._cuda.call("cuArray3DCreate_v2", c.byref(at), c.byref(shape))
        return self._keep(lambda: self._cuda.call("cuArrayDestroy", at))

    def _synchronously(self, pointer: c.c_uint64) -> None:
        self._cuda.call("cuMemFreeAsync", pointer, None)
        self._cuda.call("cuCtxSynchronize")

    def ordered(self, mib: int) -> int:
        at = c.c_uint64()
        self._cuda.call("cuMemAllocAsync", c.byref(at), c.c_size_t(mib * MIB), None)
        return self._keep(lambda: self._synchronously(at))

    def pool(self, mib: int) -> int:
        """Take memory from a pool that does not live as long."""
        pool, at = c.c_void_p(), c.c_uint64()
        self._cuda.call("cuMemPoolCreate", c.byref(pool), c.byref(_DEVICE_MEMORY))
        try:
            self._cuda.call(
                "cuMemAllocFromPoolAsync", c.byref(at), c.c_size_t(mib * MIB), pool, None
            )
        finally:
            self._cuda.call("cuMemPoolDestroy", pool)
        return self._keep(lambda: self._synchronously(at))

    def _mapped(self, handle: c.c_uint64, size: int) -> int:
        address = c.c_uint64()
        self._cuda.call(
            "cuMemAddressReserve", c.byref(address), c.c_size_t(size), _ZERO, _ZERO, _ZERO
        )
        try:
            self._cuda.call("cuMemMap", address, c.c_size_t(size), _ZERO, handle, _ZERO)
        finally:
            self._cuda.call("cuMemRelease", handle)
        return self._keep(lambda: self._cuda.call("cuMemUnmap", address, c.c_size_t(size)))

    def handle(self, mib: int) -> int:
        at = c.c_uint64()
        self._cuda.call(
            "cuMemCreate", c.byref(at), c.c_size_t(mib * MIB), c.byref(_DEVICE_MEMORY), _ZERO
        )
        return self._mapped(at, mib * MIB)

    def export(self, mib: int) -> int:
        """Return the number of a file of this process that others can open."""
        at, file = c.c_uint64(), c.c_int()
        wanted = Properties(type=1, handles=1, place=1)
        self._cuda.call("cuMemCreate", c.byref(at), c.c_size_t(mib * MIB), c.byref(wanted), _ZERO)
        self._cuda.call("cuMemExportToShareableHandle", c.byref(file), at, 1, _ZERO)
        self._mapped(at, mib * MIB)
        return file.value

    def imported(self, pid: int, number: int, mib: int) -> int:
        file = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR)
        at = c.c_uint64()
        self._cuda.call("cuMemImportFromShareableHandle", c.byref(at), c.c_void_p(file), 1)
        os.close(file)
        return self._mapped(at, mib * MIB)

    def module(self, mib: int) -> int:
        module = self._cuda.module(_PTX + f".global .b8 field[{mib * MIB}];\n")
        return self._keep(lambda: self._cuda.call("cuModuleUnload", module))

    def heap(self, mib: int) -> int:
        self._cuda.call("cuCtxSetLimit", _HEAP, c.c_size_t(mib * MIB))
        return 0

    def context(self, mib: int) -> int:
        """Take memory in a context of its own."""
        handle, at = c.c_void_p(), c.c_uint64()
        self._cuda.call("cuCtxCreate_v2", c.byref(handle), c.c_uint(0), 0)
        code = self._cuda.code("cuMemAlloc_v2", c.byref(at), c.c_size_t(mib * MIB))
        self._cuda.call("cuCtxPopCurrent_v2", None)
        if code != 0:
            self._cuda.call("cuCtxDestroy_v2", handle)
            return -code
        return self._keep(lambda: self._cuda.call("cuCtxDestroy_v2", handle))

    def churn(self, milliseconds: int) -> int:
        """Allocate, free and launch; whoever stops or kills it does it somewhere in there."""
        until = time.monotonic() + milliseconds / 1000
        while time.monotonic() < until:
            for kind in (self.plain, self.ordered, self.handle, self.pool):
                try:
                    self.free(kind(2))
                except CudaError as error:
                    if error.code != 2:
                        return -error.code
            self._sleeper.start(100_000)
        return 0

    def launch(self, count: int) -> int:
        for _ in range(count):
            self._sleeper.start(100_000)
        self._cuda.call("cuStreamSynchronize", None)
        return 0

    def burn(self, milliseconds: int) -> int:
        """Return the microseconds of GPU time that it got."""
        until, done = time.monotonic() + milliseconds / 1000, 0
        while time.monotonic() < until:
            for _ in range(4):
                self._sleeper.start(1_000_000)
            self._cuda.call("cuStreamSynchronize", None)
            done += 4000
        return done

    def _captured(self) -> c.c_void_p:
        stream = c.c_void_p()
        self._cuda.call("cuStreamCreate", c.byref(stream), c.c_uint(_NON_BLOCKING))
        self._cuda.call("cuStreamBeginCapture_v2", stream, _RELAXED)
        return stream

    def capture(self) -> int:
        graph, stream = c.c_void_p(), self._captured()
        self._sleeper.start(1000)
        self._cuda.call("cuStreamEndCapture", stream, c.byref(graph))
        self._cuda.call("cuGraphDestroy", graph)
        self._cuda.call("cuStreamDestroy_v2", stream)
        return 0

    def lost_capture(self) -> int:
        self._cuda.call("cuStreamDestroy_v2", self._captured())
        return 0

    def fork(self) -> int:
        """Return what a child did that calls a few functions: 0 for answering, 1 for hanging."""
        child = os.fork()
        if child == 0:
            at = c.c_uint64()
            codes = (
                self._cuda.code("cuCtxSynchronize"),
                self._cuda.code("cuMemAlloc_v2", c.byref(at), c.c_size_t(8)),
                self._cuda.code("cuMemAllocAsync", c.byref(at), c.c_size_t(8), None),
            )
            os._exit(0 if set(codes) == {_NOT_INITIALIZED} else 2)
        until = time.monotonic() + 5
        while time.monotonic() < until:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid != 0:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.001)
        return 1
