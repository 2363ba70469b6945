"""libcuda through ctypes, as far as the tests need it."""

import ctypes as c
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

INVALID_VALUE, OUT_OF_MEMORY, NOT_INITIALIZED = 1, 2, 3
DEVICE_UNAVAILABLE, NO_DEVICE, INVALID_DEVICE = 46, 100, 101
INVALID_IMAGE, NO_BINARY_FOR_GPU, INVALID_PTX = 200, 209, 218
UNSUPPORTED_PTX_VERSION = 222
INVALID_HANDLE, NOT_FOUND, ILLEGAL_ADDRESS, MISALIGNED = 400, 500, 700, 716
LAUNCH_FAILED, NOT_SUPPORTED, DRIVER_MISMATCH, UNKNOWN = 719, 801, 803, 999
JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE = 5, 6


class CudaError(Exception):
    def __init__(self, name: str, code: int, text: str = ""):
        super().__init__(f"{name}: {code} {text}")
        self.code = code


def fails(code: int) -> AbstractContextManager[object]:
    """Expect that a call fails with this code."""
    import pytest  # here: the processes that tests start load this file, and need no pytest

    return pytest.raises(CudaError, match=f": {code}")


class Cuda:
    """One loaded library; every call raises CudaError unless it succeeds."""

    def __init__(self, path: Path):
        self.library = c.CDLL(str(path))

    def call(self, name: str, *arguments: object) -> None:
        code = getattr(self.library, name)(*arguments)
        if code != 0:
            raise CudaError(name, code)

    def code(self, name: str, *arguments: object) -> int:
        return int(getattr(self.library, name)(*arguments))

    def init(self) -> "Cuda":
        self.call("cuInit", c.c_uint(0))
        return self

    def count(self) -> int:
        value = c.c_int()
        self.call("cuDeviceGetCount", c.byref(value))
        return value.value

    def name(self, device: int = 0) -> str:
        text = c.create_string_buffer(200)
        self.call("cuDeviceGetName", text, 200, device)
        return text.value.decode()

    def attribute(self, which: int, device: int = 0) -> int:
        value = c.c_int()
        self.call("cuDeviceGetAttribute", c.byref(value), which, device)
        return value.value

    def uuid(self, device: int = 0, function: str = "cuDeviceGetUuid_v2") -> str:
        raw = (c.c_ubyte * 16)()
        self.call(function, raw, device)
        text = bytes(raw).hex()
        return "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))

    def context(self, device: int = 0) -> c.c_void_p:
        handle = c.c_void_p()
        self.call("cuCtxCreate_v2", c.byref(handle), c.c_uint(0), device)
        return handle

    def stream(self, flags: int = 1) -> c.c_void_p:
        """Create a stream; flag 1: one that does not block the default stream."""
        handle = c.c_void_p()
        self.call("cuStreamCreate", c.byref(handle), c.c_uint(flags))
        return handle

    def event(self) -> c.c_void_p:
        handle = c.c_void_p()
        self.call("cuEventCreate", c.byref(handle), c.c_uint(0))
        return handle

    def memory(self) -> tuple[int, int]:
        free, total = c.c_size_t(), c.c_size_t()
        self.call("cuMemGetInfo_v2", c.byref(free), c.byref(total))
        return free.value, total.value

    def allocate(self, size: int) -> int:
        pointer = c.c_uint64()
        self.call("cuMemAlloc_v2", c.byref(pointer), c.c_size_t(size))
        return pointer.value

    def free(self, pointer: int) -> None:
        self.call("cuMemFree_v2", c.c_uint64(pointer))

    def upload(self, data: bytes) -> int:
        pointer = self.allocate(len(data))
        self.call("cuMemcpyHtoD_v2", c.c_uint64(pointer), data, c.c_size_t(len(data)))
        return pointer

    def download(self, pointer: int, size: int) -> bytes:
        target = c.create_string_buffer(size)
        self.call("cuMemcpyDtoH_v2", target, c.c_uint64(pointer), c.c_size_t(size))
        return target.raw

    def module(self, ptx: str) -> c.c_void_p:
        """Load PTX; the error's text is the JIT's log."""
        handle, log = c.c_void_p(), c.create_string_buffer(500)
        options = (c.c_int * 2)(JIT_ERROR_LOG, JIT_ERROR_LOG_SIZE)
        values = (c.c_void_p * 2)(c.cast(log, c.c_void_p), 500)
        code = self.code(
            "cuModuleLoadDataEx", c.byref(handle), ptx.encode() + b"\0", 2, options, values
        )
        if code != 0:
            raise CudaError("cuModuleLoadDataEx", code, log.value.decode())
        return handle

    def function(self, module: c.c_void_p, name: str) -> c.c_void_p:
        handle = c.c_void_p()
        self.call("cuModuleGetFunction", c.byref(handle), module, name.encode())
        return handle

    def launch(
        self,
        function: c.c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        *arguments: object,
        shared: int = 0,
    ) -> None:
        """Launch with ctypes values as arguments and wait."""
        self.start(function, grid, block, *arguments, shared=shared)
        self.call("cuCtxSynchronize")

    def start(
        self,
        function: c.c_void_p,
        grid: Sequence[int],
        block: Sequence[int],
        *arguments: object,
        shared: int = 0,
    ) -> None:
        pointers = (c.c_void_p * len(arguments))(
            *(c.cast(c.byref(argument), c.c_void_p) for argument in arguments)
        )
        three = [*grid, 1, 1][:3] + [*block, 1, 1][:3]
        sizes = [c.c_uint(size) for size in three]
        self.call("cuLaunchKernel", function, *sizes, c.c_uint(shared), None, pointers, None)
