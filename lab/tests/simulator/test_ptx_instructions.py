"""Every instruction of the PTX interpreter against Python's arithmetic."""

import ctypes as c
import math
import random
import struct

from lab.tests.simulator.ptx_instruction_kernels import HALVES, KERNELS, STORED, WIDTH
from lab.tests.simulator.ptx_instructions import CASES, f32, half

LANES = 96


def values(kind: str, generator: random.Random) -> list:
    """Draw an operand of this kind for every lane, the edges of its range among them."""
    if kind.endswith(("f16", "f16x2")):
        return [half_of_a_kind(kind, generator) for _ in range(LANES)]
    if kind == "byte":
        return [generator.randrange(34) for _ in range(LANES)]
    if kind == "half":
        return [generator.randrange(1 << 16) for _ in range(LANES)]
    if kind == "positive":
        return [f32(2.0 ** generator.uniform(-20, 20)) for _ in range(LANES)]
    if kind == "small":
        return [f32(generator.randrange(-4096, 4096) / 256) for _ in range(LANES)]
    if kind[0] == "f":
        edges = [0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3e9, -3e9, 1e15, 1e-20]
        exact = f32 if kind == "f32" else float
        drawn = [generator.uniform(-1e5, 1e5) for _ in range(LANES - len(edges))]
        return [exact(edge) for edge in edges + drawn]
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    edges = [low, high, 0, 1, 2, high - 1, low + 1, high // 3, 31, 33]
    return edges + [
        generator.randint(low, high) >> generator.randrange(bits) for _ in range(LANES - len(edges))
    ]


def half_of_a_kind(kind: str, generator: random.Random) -> int:
    """Draw the bits of a float of 16 bits, or of two: subnormal, large, zero; no NaN."""
    if kind.endswith("x2"):
        high = half_of_a_kind(kind[:-2], generator)
        return high << 16 | half_of_a_kind(kind[:-2], generator)
    if kind.startswith("small"):
        return half(generator.randrange(-1000, 1000) / 128, "f16")
    edges = [0, 0x8000, 1, 0x8001, 0x3C00, 0x3F80, 0x7BFF]
    if generator.randrange(8) == 0:
        return generator.choice(edges)
    top = 0x7C00 if kind == "any f16" else 0x7F80
    # Near each other more often than not: sums that cancel, products that stay in range.
    near = top // 2 + generator.randrange(-0x800, 0x800)
    drawn = near if generator.randrange(2) else generator.randrange(top)
    return drawn | generator.choice([0, 0x8000])


def close(first: float, second: float, exact: bool) -> bool:
    """Return whether two results are the same, exactly or nearly."""
    if math.isnan(first) or math.isnan(second):
        return math.isnan(first) and math.isnan(second)
    return first == second if exact else math.isclose(first, second, rel_tol=1e-5, abs_tol=1e-5)


def test_executes_every_instruction_as_python_does(kept_gpu):
    modules = {
        False: kept_gpu.module(KERNELS),
        True: kept_gpu.module(HALVES.replace("sm_90", "sm_80")),  # the GPU's
    }
    assert len(CASES) > 270
    for number, (text, inputs, output, model) in enumerate(CASES.values()):
        generator = random.Random(text)
        drawn = [values(kind, generator) for kind in inputs]
        pointers = []
        for kind, column in zip(inputs, drawn, strict=True):
            code = WIDTH[STORED.get(kind, kind)]
            pointers.append(kept_gpu.upload(struct.pack(f"{LANES}{code}", *column)))
        stored = STORED.get(output, output)
        size = struct.calcsize(WIDTH[stored])
        pointers.append(kept_gpu.allocate(LANES * size))
        function = kept_gpu.function(modules["f16" in text], f"k{number}")
        kept_gpu.launch(function, [1], [LANES], *(c.c_uint64(pointer) for pointer in pointers))
        result = struct.unpack(
            f"{LANES}{WIDTH[stored]}", kept_gpu.download(pointers[-1], LANES * size)
        )
        for lane, operands in enumerate(zip(*drawn, strict=True)):
            expected = model(*operands)
            if expected is None:
                continue
            exact = not output.endswith("~")
            assert close(result[lane], expected, exact), (text, operands, result[lane], expected)
        for pointer in pointers:
            kept_gpu.free(pointer)
