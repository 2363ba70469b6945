"""Every instruction of the PTX interpreter against Python's arithmetic."""

import ctypes as c
import math
import random
import struct

from tests.simulator.ptx_instruction_kernels import KERNELS, STORED, WIDTH
from tests.simulator.ptx_instructions import CASES, f32

LANES = 96


def values(kind: str, generator: random.Random) -> list:
    """Draw an operand of this kind for every lane, the edges of its range among them."""
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
        return [exact(each) for each in edges + drawn]
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    edges = [low, high, 0, 1, 2, high - 1, low + 1, high // 3, 31, 33]
    return edges + [
        generator.randint(low, high) >> generator.randrange(bits) for _ in range(LANES - len(edges))
    ]


def close(one: float, other: float, exact: bool) -> bool:
    """Say whether two results are the same, exactly or nearly."""
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other if exact else math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-5)


def test_every_instruction_against_python(kept_gpu):
    module = kept_gpu.module(KERNELS)
    assert len(CASES) > 200
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
        function = kept_gpu.function(module, f"k{number}")
        kept_gpu.launch(function, [1], [LANES], *(c.c_uint64(each) for each in pointers))
        result = struct.unpack(
            f"{LANES}{WIDTH[stored]}", kept_gpu.download(pointers[-1], LANES * size)
        )
        for lane, operands in enumerate(zip(*drawn, strict=True)):
            expected = model(*operands)
            if expected is None:
                continue
            exact = not output.endswith("~")
            assert close(result[lane], expected, exact), (text, operands, result[lane], expected)
        for each in pointers:
            kept_gpu.free(each)
