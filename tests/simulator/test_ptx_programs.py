"""Whole PTX programs on the GPU: control flow, barriers, atomics, memory, shuffles."""

import array
import ctypes as c
import math
import struct

import pytest

from tests.simulator import cuda as codes
from tests.simulator.cuda import Cuda, CudaError
from tests.simulator.ptx_modules import ptx_module


def program(gpu: Cuda, name: str) -> c.c_void_p:
    """Load the program of a file in ptx/."""
    return gpu.function(gpu.module(ptx_module(name)), name)


def words(gpu: Cuda, pointer: int, count: int) -> list[int]:
    """Read words of 32 bits from the GPU's memory."""
    return array.array("I", gpu.download(pointer, 4 * count)).tolist()


def test_divergence(kept_gpu):
    out = kept_gpu.allocate(4 * 333)
    kept_gpu.launch(program(kept_gpu, "collatz"), [1], [333], c.c_uint64(out))

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n = 3 * n + 1 if n % 2 else n // 2
            count += 1
        return count

    assert words(kept_gpu, out, 333) == [steps(n + 1) for n in range(333)]


def test_barrier_and_dynamic_shared_memory(kept_gpu):
    data = kept_gpu.upload(array.array("I", range(200)).tobytes())
    kept_gpu.launch(program(kept_gpu, "reverse"), [1], [200], c.c_uint64(data), shared=800)
    assert words(kept_gpu, data, 200) == list(reversed(range(200)))
    with pytest.raises(CudaError) as fault:
        kept_gpu.launch(program(kept_gpu, "reverse"), [1], [200], c.c_uint64(data), shared=796)
    assert fault.value.code == codes.ILLEGAL_ADDRESS


def test_leaving_before_a_barrier(kept_gpu):
    out = kept_gpu.upload(bytes(4 * 64))
    kept_gpu.launch(program(kept_gpu, "leave_before_barrier"), [1], [64], c.c_uint64(out))
    assert words(kept_gpu, out, 64) == [32, 0] * 32


def test_atomics(kept_gpu):
    start = struct.pack("5I2IfdQ", 0, 0, 5, 50, 0, 0, 77, 0.0, 0.0, 9)
    out = kept_gpu.upload(start)
    kept_gpu.launch(program(kept_gpu, "atomics"), [1], [100], c.c_uint64(out))
    result = struct.unpack("5I2IfdQ", kept_gpu.download(out, len(start)))
    assert result == (100, 4950, 99, 0, 127, 0, 1000, 50.0, 25.0, 99)


def test_memory_of_every_kind(kept_gpu):
    data = kept_gpu.upload(struct.pack("4I", 0xF1020304, 2, 3, 0xABCD) + bytes(32))
    pair = (c.c_uint32 * 2)(11, 22)
    kept_gpu.launch(program(kept_gpu, "memory"), [1], [3], c.c_uint64(data), pair)
    assert words(kept_gpu, data, 11)[4:] == [2, 0xF1020304, 0xFFFFFFF1, 0xF1, 22, 11, 0xCD]


def test_shuffles(kept_gpu):
    out = kept_gpu.allocate(8 * 64)
    kept_gpu.launch(program(kept_gpu, "shuffle"), [1], [64], c.c_uint64(out))
    result = words(kept_gpu, out, 128)
    assert result[0::2] == [496] * 32 + [496 + 1024] * 32
    assert result[1::2] == [999, *range(31), 999, *range(32, 63)]


def test_three_dimensions(kept_gpu):
    grid, block = [3, 2, 2], [4, 3, 2]
    total = math.prod(grid) * math.prod(block)
    out = kept_gpu.allocate(4 * total)
    kept_gpu.launch(program(kept_gpu, "three_dimensions"), grid, block, c.c_uint64(out))
    assert words(kept_gpu, out, total) == list(range(total))


def test_a_compilers_manners(kept_gpu):
    data = kept_gpu.upload(array.array("f", range(192)).tobytes())
    function = program(kept_gpu, "compiled")
    kept_gpu.launch(function, [1], [64], c.c_uint64(data), c.c_int(3))
    result = array.array("f", kept_gpu.download(data, 768))
    assert result.tolist() == [1.5 * i + 2 for i in range(192)]
    with pytest.raises(CudaError) as refused:
        kept_gpu.launch(function, [1], [65], c.c_uint64(data), c.c_int(3))
    assert refused.value.code == codes.INVALID_VALUE


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [(1.0, 2.0, 1 + 8 + 64 + 128), (2.0, 1.0, 2 + 4 + 8 + 32 + 64), (math.nan, 1.0, 2 + 4 + 16)],
)
def test_comparisons(kept_gpu, x, y, expected):
    out = kept_gpu.allocate(4)
    kept_gpu.launch(
        program(kept_gpu, "compare"), [1], [1], c.c_uint64(out), c.c_float(x), c.c_float(y)
    )
    assert words(kept_gpu, out, 1) == [expected]
