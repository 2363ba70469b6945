"""Whole PTX programs on the GPU: control flow, barriers, atomics, memory, shuffles."""

import array
import ctypes as c
import math
import random
import struct

import pytest

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda, CudaError
from lab.driver_clients.ptx_modules import HEAD, ptx_module

ASSERT = 710


def program(gpu: Cuda, name: str) -> c.c_void_p:
    """Load the program of a file in ptx/."""
    return gpu.function(gpu.module(ptx_module(name)), name)


def words(gpu: Cuda, pointer: int, count: int) -> list[int]:
    """Read words of 32 bits from the GPU's memory."""
    return array.array("I", gpu.download(pointer, 4 * count)).tolist()


def test_executes_divergence(kept_gpu):
    out = kept_gpu.allocate(4 * 333)
    kept_gpu.launch(program(kept_gpu, "collatz"), [1], [333], c.c_uint64(out))

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n = 3 * n + 1 if n % 2 else n // 2
            count += 1
        return count

    assert words(kept_gpu, out, 333) == [steps(n + 1) for n in range(333)]


def test_executes_barrier_and_dynamic_shared_memory(kept_gpu):
    data = kept_gpu.upload(array.array("I", range(200)).tobytes())
    kept_gpu.launch(program(kept_gpu, "reverse"), [1], [200], c.c_uint64(data), shared=800)
    assert words(kept_gpu, data, 200) == list(reversed(range(200)))
    with pytest.raises(CudaError) as fault:
        kept_gpu.launch(program(kept_gpu, "reverse"), [1], [200], c.c_uint64(data), shared=640)
    assert fault.value.code == codes.ILLEGAL_ADDRESS


def test_executes_leaving_before_a_barrier(kept_gpu):
    out = kept_gpu.upload(bytes(4 * 64))
    kept_gpu.launch(program(kept_gpu, "leave_before_barrier"), [1], [64], c.c_uint64(out))
    assert words(kept_gpu, out, 64) == [32, 0] * 32


def test_executes_atomics(kept_gpu):
    start = struct.pack("5I2IfdQ", 0, 0, 5, 50, 0, 0, 77, 0.0, 0.0, 9)
    out = kept_gpu.upload(start)
    kept_gpu.launch(program(kept_gpu, "atomics"), [1], [100], c.c_uint64(out))
    result = struct.unpack("5I2IfdQ", kept_gpu.download(out, len(start)))
    assert result == (100, 4950, 99, 0, 127, 0, 1000, 50.0, 25.0, 99)


def test_executes_memory_of_every_kind(kept_gpu):
    data = kept_gpu.upload(struct.pack("4I", 0xF1020304, 2, 3, 0xABCD) + bytes(32))
    pair = (c.c_uint32 * 2)(11, 22)
    kept_gpu.launch(program(kept_gpu, "memory"), [1], [3], c.c_uint64(data), pair)
    assert words(kept_gpu, data, 11)[4:] == [2, 0xF1020304, 0xFFFFFFF1, 0xF1, 22, 11, 0xCD]


def test_executes_shuffles(kept_gpu):
    out = kept_gpu.allocate(8 * 64)
    kept_gpu.launch(program(kept_gpu, "shuffle"), [1], [64], c.c_uint64(out))
    result = words(kept_gpu, out, 128)
    assert result[0::2] == [496] * 32 + [496 + 1024] * 32
    assert result[1::2] == [999, *range(31), 999, *range(32, 63)]


def test_executes_votes_and_matches(kept_gpu):
    out = kept_gpu.allocate(48 * 48)
    kept_gpu.launch(program(kept_gpu, "votes"), [1], [48], c.c_uint64(out))
    result = words(kept_gpu, out, 48 * 12)
    for t in range(48):
        warp = [lane for lane in range(48) if lane // 32 == t // 32]
        here = sum(1 << lane % 32 for lane in warp)
        ones = sum(1 << lane % 32 for lane in warp if lane % 4 == 1)
        alike = sum(1 << lane % 32 for lane in warp if lane % 4 == t % 4)
        assert result[12 * t : 12 * t + 10] == [
            here,
            ones,
            ~ones & 0xFF,
            (1 if t < 32 else 0) | 2 | 16,
            alike,
            here,
            0,
            1,
            (1 << t % 32) - 1,
            ones if t % 4 == 1 else 0,
        ]


def test_executes_carries(kept_gpu):
    generator = random.Random(5)
    edges = [0, 1, (1 << 64) - 1, 1 << 63, (1 << 128) - 1, 1 << 64]
    drawn = [generator.getrandbits(128) >> generator.randrange(100) for _ in range(58)]
    numbers = edges + drawn
    others = list(reversed(numbers))
    mask = (1 << 64) - 1
    pairs = zip(numbers, others, strict=True)
    data = b"".join(struct.pack("4Q", a & mask, a >> 64, b & mask, b >> 64) for a, b in pairs)
    out = kept_gpu.allocate(48 * 64)
    carry = program(kept_gpu, "carry")
    kept_gpu.launch(carry, [1], [64], c.c_uint64(kept_gpu.upload(data)), c.c_uint64(out))
    result = kept_gpu.download(out, 48 * 64)
    for at, (a, b) in enumerate(zip(numbers, others, strict=True)):
        expected = [a + b, a - b, (a & mask) * (b & mask)]
        assert result[48 * at : 48 * at + 48] == b"".join(
            (number & (1 << 128) - 1).to_bytes(16, "little") for number in expected
        )


def test_executes_functions(kept_gpu):
    count = 64

    def twice(a: float) -> float:
        return -1.0 if a < 0 else 2 * a

    def first(t: int) -> float:
        v = twice(float(t - 2))
        return sum((twice(v + i) for i in range(t)), 0.0) if t & 1 else v

    out = kept_gpu.allocate(4 * count)
    kept_gpu.launch(program(kept_gpu, "functions"), [1], [count], c.c_uint64(out))
    expected = [
        first(t) + twice(first((t + 1) % count) + sum((1, 2, 4)[(k + t) % 3] for k in range(t % 5)))
        for t in range(count)
    ]
    assert array.array("f", kept_gpu.download(out, 4 * count)).tolist() == expected


def test_executes_calls_by_address(kept_gpu):
    """The address is a function's own, wherever it comes from; any other ends the kernel."""
    out = kept_gpu.allocate(4 * 8)
    module = kept_gpu.module(ptx_module("indirect_calls"))
    function = kept_gpu.function(module, "indirect_calls")
    kept_gpu.launch(function, [1], [8], c.c_uint64(out), c.c_uint64(0))
    assert words(kept_gpu, out, 8) == [0, 1, 4, 9, 8, 1000, 12, 49]
    common, size = c.c_uint64(), c.c_size_t()
    kept_gpu.call("cuModuleGetGlobal_v2", c.byref(common), c.byref(size), module, b"calls")
    assert words(kept_gpu, common.value, 1) == [8]
    with pytest.raises(CudaError) as fault:
        kept_gpu.launch(function, [1], [8], c.c_uint64(out), c.c_uint64(4096))
    assert fault.value.code == codes.LAUNCH_FAILED


def test_ends_a_kernel_whose_function_calls_itself_by_address(kept_gpu):
    """Inlining cannot follow it, so the call is one of an unknown address."""
    text = (
        f"{HEAD}.func loop(.param .b64 self)\n{{\n.reg .b64 %rd<2>;\nld.param.b64 %rd1, [self];\n"
        "{\n.param .b64 again;\nst.param.b64 [again], %rd1;\n"
        "shape: .callprototype _ (.param .b64 _);\ncall %rd1, (again), shape;\n}\nret;\n}\n"
        ".visible .entry k()\n{\n.reg .b64 %rd<2>;\n.param .b64 self;\nmov.u64 %rd1, loop;\n"
        "st.param.b64 [self], %rd1;\ncall loop, (self);\nret;\n}\n"
    )
    function = kept_gpu.function(kept_gpu.module(text), "k")
    with pytest.raises(CudaError) as fault:
        kept_gpu.launch(function, [1], [1])
    assert fault.value.code == codes.LAUNCH_FAILED


def test_reads_parameters_at_a_computed_address(kept_gpu):
    out, function = kept_gpu.allocate(16), program(kept_gpu, "parameters")
    values = (c.c_uint32 * 4)(5, 6, 7, 8)
    kept_gpu.launch(function, [1], [4], c.c_uint64(out), values)
    assert words(kept_gpu, out, 4) == [5, 6, 7, 8]
    with pytest.raises(CudaError) as fault:
        kept_gpu.launch(function, [1], [5], c.c_uint64(out), values)
    assert fault.value.code == codes.ILLEGAL_ADDRESS


def test_executes_printing_and_assertions(kept_gpu, capfd):
    function = program(kept_gpu, "printing")
    kept_gpu.launch(function, [1], [2], c.c_uint32(0))
    expected = "thread 0:  1.50, ffffffffff !%\nthread 1:  2.50, ffffffffff !%\n"
    assert capfd.readouterr().out == expected
    with pytest.raises(CudaError) as fault:
        kept_gpu.launch(function, [1], [2], c.c_uint32(1))
    assert fault.value.code == ASSERT


def test_executes_a_guarded_call_and_labels_of_one_name(kept_gpu):
    """Caller and functions have a label END and a register %r1 each; odd threads do not call."""
    text = (
        f"{HEAD}.func (.param .b32 r) plus(.param .b32 a)\n{{\n.reg .b32 %r<2>;\n"
        ".reg .pred %p;\nld.param.b32 %r1, [a];\nsetp.gt.u32 %p, %r1, 8;\n@%p bra END;\n"
        "add.u32 %r1, %r1, 100;\nEND:\nst.param.b32 [r], %r1;\n@%p ret;\n"
        "st.param.b32 [r], %r1;\n}\n"
        ".visible .entry k(.param .u64 out)\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd<3>;\n"
        ".reg .pred %p<3>;\n.param .b32 a, r;\nmov.u32 %r1, %tid.x;\nand.b32 %r2, %r1, 1;\n"
        "setp.eq.u32 %p1, %r2, 1;\nsetp.eq.u32 %p2, %r1, 4;\nst.param.b32 [r], 7;\n"
        "@%p2 bra END;\nst.param.b32 [a], %r1;\n@!%p1 call.uni (r), plus, (a);\nEND:\n"
        "ld.param.b32 %r3, [r];\nld.param.u64 %rd1, [out];\nmul.wide.u32 %rd2, %r1, 4;\n"
        "add.s64 %rd1, %rd1, %rd2;\nst.global.u32 [%rd1], %r3;\nret;\n}\n"
    )
    out = kept_gpu.allocate(4 * 12)
    kept_gpu.launch(kept_gpu.function(kept_gpu.module(text), "k"), [1], [12], c.c_uint64(out))
    assert words(kept_gpu, out, 12) == [100, 7, 102, 7, 7, 7, 106, 7, 108, 7, 10, 7]


def test_reads_names_of_any_length(kept_gpu):
    """A compiler's names hold whole types; two differ in their last letter alone."""
    long = "_ZN" + "5boost" * 700
    text = (
        ".version 7.0\n.target sm_75\n.address_size 64\n"
        f".global .b32 {long}v;\n.shared .b32 {long}s[4];\n"
        f".func (.param .b32 r) {long}f(.param .b32 {long}p)\n{{\n.reg .b32 %r<2>;\n"
        f"ld.param.b32 %r1, [{long}p];\nadd.s32 %r1, %r1, 1;\nst.param.b32 [r], %r1;\nret;\n}}\n"
        + "".join(
            f".visible .entry {long}{n}(.param .u64 {long}p)\n{{\n"
            f".reg .b32 %{long}a<2>, %{long}b<2>;\n.reg .b64 %rd<3>;\n.param .b32 {long}q, r;\n"
            f"ld.param.u64 %rd1, [{long}p];\nbra {long}l{n};\ntrap;\n{long}l{n}:\n"
            f"st.shared.b32 [{long}s+4], {n};\nld.shared.b32 %{long}a1, [{long}s+4];\n"
            f"st.param.b32 [{long}q], %{long}a1;\ncall (r), {long}f, ({long}q);\n"
            f"ld.param.b32 %{long}b1, [r];\nst.global.b32 [%rd1], %{long}b1;\n"
            f"mov.u64 %rd2, {long}v;\nst.global.b32 [%rd2], %{long}b1;\nret;\n}}\n"
            for n in (7, 8)
        )
    )
    module = kept_gpu.module(text)
    out = kept_gpu.allocate(4)
    for n in (7, 8):
        kept_gpu.launch(kept_gpu.function(module, f"{long}{n}"), [1], [1], c.c_uint64(out))
        assert words(kept_gpu, out, 1) == [n + 1]
    pointer, size = c.c_uint64(), c.c_size_t()
    kept_gpu.call(
        "cuModuleGetGlobal_v2", c.byref(pointer), c.byref(size), module, f"{long}v".encode()
    )
    assert words(kept_gpu, pointer.value, 1) == [9]


def test_shares_module_memory_among_the_kernels_that_use_it(kept_gpu):
    text = (
        ".version 7.0\n.target sm_75\n.address_size 64\n.shared .align 4 .b8 board[400];\n"
        ".extern .shared .align 16 .b8 rest[];\n"
        ".visible .entry uses(.param .u64 out)\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd<2>;\n"
        # The open-ended one is named first, and begins behind the other all the same.
        "mov.u32 %r1, rest;\nmov.u32 %r2, board[8];\nmov.u32 %r3, rest;\n"
        "st.shared.u32 [rest+4], %r1;\nld.shared.u32 %r3, [rest+4];\n"
        "ld.param.u64 %rd1, [out];\nst.global.v2.b32 [%rd1], {%r2, %r3};\nret;\n}\n"
        ".visible .entry does_not()\n{\nret;\n}\n"
    )
    module = kept_gpu.module(text)
    uses, does_not = (kept_gpu.function(module, name) for name in ("uses", "does_not"))
    size = c.c_int()
    kept_gpu.call("cuFuncGetAttribute", c.byref(size), 1, does_not)
    assert size.value == 0
    kept_gpu.call("cuFuncGetAttribute", c.byref(size), 1, uses)
    assert size.value == 400
    out = kept_gpu.allocate(8)
    kept_gpu.launch(uses, [1], [1], c.c_uint64(out), shared=8)
    assert words(kept_gpu, out, 2) == [8, 400]


def test_executes_in_three_dimensions(kept_gpu):
    grid, block = [3, 2, 2], [4, 3, 2]
    total = math.prod(grid) * math.prod(block)
    out = kept_gpu.allocate(4 * total)
    kept_gpu.launch(program(kept_gpu, "three_dimensions"), grid, block, c.c_uint64(out))
    assert words(kept_gpu, out, total) == list(range(total))


def test_executes_what_compilers_emit(kept_gpu):
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
def test_executes_comparisons(kept_gpu, x, y, expected):
    out = kept_gpu.allocate(4)
    kept_gpu.launch(
        program(kept_gpu, "compare"), [1], [1], c.c_uint64(out), c.c_float(x), c.c_float(y)
    )
    assert words(kept_gpu, out, 1) == [expected]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (0x3C00, 0x4000, 1 + 2 + 8),  # 1 and 2; as bf16 both less than 3
        (0x4000, 0x3C00, 2 + 4),
        (0x8000, 0x0000, 16),  # zeros are equal, and neither is not
        (0x7C01, 0x3C00, 2),  # a NaN of f16, a large number of bf16
        (0x7FC0, 0x3C00, 2 + 32),  # a NaN of both
    ],
)
def test_executes_comparisons_of_16_bit_floats(kept_gpu, a, b, expected):
    out = kept_gpu.allocate(4)
    text = ptx_module("compare_halves").replace("sm_90", "sm_80")  # the GPU's
    compare = kept_gpu.function(kept_gpu.module(text), "compare_halves")
    kept_gpu.launch(compare, [1], [1], c.c_uint64(out), c.c_uint16(a), c.c_uint16(b))
    assert words(kept_gpu, out, 1) == [expected]
