"""The PTX interpreter: each instruction against Python's arithmetic, control flow, memory."""

import array
import ctypes as c
import math
import random
import struct
import subprocess
import sysconfig
from pathlib import Path

import pytest

from tests.simulator import cuda as codes
from tests.simulator.cuda import CudaError

PTX = Path(__file__).parent / "ptx"
PTXAS = Path(sysconfig.get_path("purelib")) / "nvidia/cuda_nvcc/bin/ptxas"
HEAD = ".version 7.0\n.target sm_75\n.address_size 64\n"
WIDTH = {
    "u16": "H",
    "s16": "h",
    "u32": "I",
    "s32": "i",
    "u64": "Q",
    "s64": "q",
    "f32": "f",
    "f64": "d",
}
REGISTER = {"u16": "b16", "s16": "b16", "u32": "b32", "s32": "b32", "u64": "b64", "s64": "b64"}
LANES = 96


def wrap(value: int, kind: str) -> int:
    bits = int(kind[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def clamp(value: int, kind: str) -> int:
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def f32(value: float) -> float:
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def bits_of(value: int, kind: str) -> int:
    return value & ((1 << int(kind[1:])) - 1)


def shifted(a: int, by: int, kind: str) -> int:
    return a >> min(by, int(kind[1:]) - 1) if kind[0] == "s" or by < int(kind[1:]) else 0


INTEGERS = ["u16", "s16", "u32", "s32", "u64", "s64"]
CASES: dict[str, tuple[str, list[str], str, object]] = {}


def case(text: str, inputs: list[str], output: str, model: object) -> None:
    CASES[text] = (text, inputs, output, model)


def _arithmetic() -> None:
    for t in INTEGERS:
        case(f"add.{t}", [t, t], t, lambda a, b, t=t: wrap(a + b, t))
        case(f"sub.{t}", [t, t], t, lambda a, b, t=t: wrap(a - b, t))
        case(f"mul.lo.{t}", [t, t], t, lambda a, b, t=t: wrap(a * b, t))
        case(f"mul.hi.{t}", [t, t], t, lambda a, b, t=t: wrap(a * b >> int(t[1:]), t))
        case(f"mad.lo.{t}", [t, t, t], t, lambda a, b, k, t=t: wrap(a * b + k, t))
        case(f"min.{t}", [t, t], t, min)
        case(f"max.{t}", [t, t], t, max)
        case(f"div.{t}", [t, t], t, lambda a, b, t=t: None if b == 0 else wrap(quotient(a, b), t))
        case(
            f"rem.{t}",
            [t, t],
            t,
            lambda a, b, t=t: None if b == 0 else wrap(a - b * quotient(a, b), t),
        )
        case(f"shr.{t}", [t, "u32"], t, lambda a, b, t=t: shifted(a, b, t))
        b = f"b{t[1:]}"
        if t[0] == "u":
            bits = int(t[1:])
            case(
                f"shl.{b}",
                [t, "u32"],
                t,
                lambda a, k, t=t, n=bits: 0 if k >= n else wrap(a << k, t),
            )
            case(f"and.{b}", [t, t], t, lambda a, k: a & k)
            case(f"or.{b}", [t, t], t, lambda a, k: a | k)
            case(f"xor.{b}", [t, t], t, lambda a, k: a ^ k)
            case(f"not.{b}", [t], t, lambda a, t=t: wrap(~a, t))
        else:
            case(f"abs.{t}", [t], t, lambda a, t=t: wrap(abs(a), t))
            case(f"neg.{t}", [t], t, lambda a, t=t: wrap(-a, t))
    for t, w in (("u16", "u32"), ("s16", "s32"), ("u32", "u64"), ("s32", "s64")):
        case(f"mul.wide.{t}", [t, t], w, lambda a, b: a * b)
        case(f"mad.wide.{t}", [t, t, w], w, lambda a, b, k, w=w: wrap(a * b + k, w))
    for t in ("u32", "u64"):
        b, bits = f"b{t[1:]}", int(t[1:])
        case(f"popc.{b}", [t], "u32", lambda a: a.bit_count())
        case(f"clz.{b}", [t], "u32", lambda a, n=bits: n - a.bit_length())
        case(f"brev.{b}", [t], t, lambda a, n=bits: int(f"{a:0{n}b}"[::-1], 2))
        case(f"bfe.{t}", [t, "byte", "byte"], t, lambda a, p, n: a >> p & ((1 << n) - 1))
        case(
            f"bfi.{b}",
            [t, t, "byte", "byte"],
            t,
            lambda a, k, p, n, w=bits: (
                (k & ~(((1 << n) - 1) << p) | (a & ((1 << n) - 1)) << p) & ((1 << w) - 1)
            ),
        )
    case("bfe.s32", ["s32", "byte", "byte"], "s32", signed_field)


def signed_field(a: int, position: int, length: int) -> int:
    if length == 0:
        return 0
    # Above the word, its sign goes on.
    field = (
        (a >> min(position, 31)) & ((1 << length) - 1) if length < 64 else a >> min(position, 31)
    )
    top = a >> min(position + length - 1, 31) & 1
    return wrap(field | (-1 << length if top else 0), "s32")


def _floats() -> None:
    for t, same in (("f32", f32), ("f64", float)):
        case(f"add.{t}", [t, t], t, lambda a, b, r=same: r(a + b))
        case(f"sub.{t}", [t, t], t, lambda a, b, r=same: r(a - b))
        case(f"mul.{t}", [t, t], t, lambda a, b, r=same: r(a * b))
        case(f"div.rn.{t}", [t, t], t, lambda a, b, r=same: None if b == 0 else r(a / b))
        case(f"neg.{t}", [t], t, lambda a: -a)
        case(f"abs.{t}", [t], t, abs)
        case(f"sqrt.rn.{t}", [t], t, lambda a, r=same: r(math.sqrt(a)) if a >= 0 else math.nan)
        case(f"rcp.rn.{t}", [t], t, lambda a, r=same: None if a == 0 else r(1 / a))
        case(f"min.{t}", [t, t], t, lambda a, b: None if a == b else min(a, b))
        case(f"max.{t}", [t, t], t, lambda a, b: None if a == b else max(a, b))
    case("fma.rn.f32", ["small", "small", "small"], "f32", lambda a, b, k: f32(a * b + k))
    for name, model in (("sin", math.sin), ("cos", math.cos), ("ex2", lambda a: 2.0**a)):
        case(f"{name}.approx.f32", ["small"], "f32~", model)
    case("lg2.approx.f32", ["positive"], "f32~", math.log2)
    case("rsqrt.approx.f32", ["positive"], "f32~", lambda a: 1 / math.sqrt(a))


def _conversions() -> None:
    for source in [*INTEGERS, "f32", "f64"]:
        for target in [*INTEGERS, "f32", "f64"]:
            if source == target and source[0] != "f":
                continue
            if source[0] == "f" and target[0] != "f":
                for mode, rounded in (
                    ("rni", round),
                    ("rzi", int),
                    ("rmi", math.floor),
                    ("rpi", math.ceil),
                ):
                    case(
                        f"cvt.{mode}.{target}.{source}",
                        [source],
                        target,
                        lambda a, r=rounded, t=target: clamp(r(a), t),
                    )
            elif source[0] == "f":
                if source != target:
                    rounding = ".rn" if target == "f32" else ""
                    same = f32 if target == "f32" else float
                    case(f"cvt{rounding}.{target}.{source}", [source], target, same)
                else:
                    case(f"cvt.rni.{target}.{source}", [source], target, lambda a: float(round(a)))
            elif target[0] == "f":
                same = int_to_f32 if target == "f32" else float
                case(f"cvt.rn.{target}.{source}", [source], target, same)
            else:
                case(f"cvt.{target}.{source}", [source], target, lambda a, t=target: wrap(a, t))
    case("cvt.sat.s16.s32", ["s32"], "s16", lambda a: clamp(a, "s16"))
    case("cvt.sat.u32.s32", ["s32"], "u32", lambda a: clamp(a, "u32"))


def int_to_f32(value: int) -> float:
    """Round once, half to even, as Python's own way over a double would round twice."""
    size = abs(value)
    extra = max(0, size.bit_length() - 24)
    low = size & ((1 << extra) - 1)
    kept = size >> extra
    half = 1 << extra >> 1
    kept += extra > 0 and (low > half or (low == half and kept & 1))
    return math.copysign(float(kept << extra), value) if value else 0.0


_arithmetic()
_floats()
_conversions()
case("prmt.b32", ["u32", "u32", "half"], "u32", lambda a, b, k: permuted(a, b, k))
case(
    "shf.l.wrap.b32",
    ["u32", "u32", "u32"],
    "u32",
    lambda a, b, k: ((b << 32 | a) << (k & 31) >> 32) & 0xFFFFFFFF,
)
case(
    "shf.r.clamp.b32",
    ["u32", "u32", "u32"],
    "u32",
    lambda a, b, k: (b << 32 | a) >> min(k, 32) & 0xFFFFFFFF,
)


def permuted(a: int, b: int, pick: int) -> int:
    octets = struct.pack("II", a, b)
    made = []
    for n in range(4):
        choice = pick >> 4 * n & 15
        value = octets[choice & 7]
        made.append((0xFF if value & 0x80 else 0) if choice & 8 else value)
    return struct.unpack("I", bytes(made))[0]


def values(kind: str, generator: random.Random) -> list:
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


STORED = {"byte": "u32", "half": "u32", "small": "f32", "positive": "f32", "f32~": "f32"}


def kernel(number: int, text: str, inputs: list[str], output: str) -> str:
    """Write a kernel that applies one instruction to element tid of each input array."""
    lines = [f".visible .entry k{number}("]
    lines += [f"    .param .u64 p{i}," for i in range(len(inputs))] + ["    .param .u64 p)", "{"]
    lines += ["    .reg .b32 %t;", "    .reg .b64 %at, %off;", "    mov.u32 %t, %tid.x;"]
    names = []
    for i, kind in enumerate([*inputs, output]):
        stored = STORED.get(kind, kind)
        lines.append(f"    .reg .{REGISTER.get(stored, stored)} %v{i};")
        names.append((f"%v{i}", stored))
    for i, (name, stored) in enumerate(names):
        size = struct.calcsize(WIDTH[stored])
        lines.append(f"    mul.wide.u32 %off, %t, {size};")
        last = i == len(inputs)
        lines.append(f"    ld.param.u64 %at, [p{'' if last else i}];")
        lines.append("    add.s64 %at, %at, %off;")
        if last:
            operands = ", ".join([name, *(each for each, _ in names[:-1])])
            lines += [f"    {text} {operands};", f"    st.global.{stored} [%at], {name};"]
        else:
            lines.append(f"    ld.global.{stored} {name}, [%at];")
    return "\n".join([*lines, "    ret;", "}"])


ALL_KERNELS = HEAD + "\n".join(kernel(n, *each[:3]) for n, each in enumerate(CASES.values()))


@pytest.fixture(scope="module")
def gpu(binaries, tmp_path_factory):
    from tests.simulator.driver_root import DriverRoot

    driver = DriverRoot(tmp_path_factory.mktemp("ptx") / "root", binaries)
    driver.install("A100-SXM4-40GB", 1)
    yield driver.cuda().init()
    driver.stop()


@pytest.fixture(autouse=True)
def context(gpu):
    made = gpu.context()
    yield made
    gpu.call("cuCtxDestroy_v2", made)


def assembles(text: str, tmp_path: Path) -> None:
    source = tmp_path / "test.ptx"
    source.write_text(text)
    command = [str(PTXAS), "-arch=sm_80", str(source), "-o", str(tmp_path / "test.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def close(one: float, other: float, exact: bool) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return one == other if exact else math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-5)


def test_every_instruction_against_python(gpu):
    module = gpu.module(ALL_KERNELS)
    assert len(CASES) > 200
    for number, (text, inputs, output, model) in enumerate(CASES.values()):
        generator = random.Random(text)
        drawn = [values(kind, generator) for kind in inputs]
        pointers = []
        for kind, column in zip(inputs, drawn, strict=True):
            code = WIDTH[STORED.get(kind, kind)]
            pointers.append(gpu.upload(struct.pack(f"{LANES}{code}", *column)))
        stored = STORED.get(output, output)
        size = struct.calcsize(WIDTH[stored])
        pointers.append(gpu.allocate(LANES * size))
        function = gpu.function(module, f"k{number}")
        gpu.launch(function, [1], [LANES], *(c.c_uint64(each) for each in pointers))
        result = struct.unpack(f"{LANES}{WIDTH[stored]}", gpu.download(pointers[-1], LANES * size))
        for lane, operands in enumerate(zip(*drawn, strict=True)):
            expected = model(*operands)
            if expected is None:
                continue
            exact = not output.endswith("~")
            assert close(result[lane], expected, exact), (text, operands, result[lane], expected)
        for each in pointers:
            gpu.free(each)


def test_all_test_ptx_assembles(tmp_path):
    assembles(ALL_KERNELS, tmp_path)
    for source in sorted(PTX.glob("*.ptx")):
        assembles(source.read_text(), tmp_path)
    for text in PROGRAMS.values():
        assembles(HEAD + text, tmp_path)


PROGRAMS = {
    # Each thread walks a different number of steps (Collatz), so that the block diverges.
    "collatz": """
.visible .entry collatz(.param .u64 out)
{
    .reg .pred %p, %q;
    .reg .b32 %r<6>;
    .reg .b64 %rd<3>;
    mov.u32 %r1, %tid.x;
    add.u32 %r2, %r1, 1;
    mov.u32 %r3, 0;
again:
    setp.eq.u32 %p, %r2, 1;
    @%p bra done;
    and.b32 %r4, %r2, 1;
    setp.ne.u32 %q, %r4, 0;
    @%q mad.lo.u32 %r2, %r2, 3, 1;
    @!%q shr.u32 %r2, %r2, 1;
    add.u32 %r3, %r3, 1;
    bra again;
done:
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    st.global.u32 [%rd2], %r3;
    ret;
}
""",
    # Reverses a block through shared memory whose size the launch gives.
    "reverse": """
.extern .shared .align 4 .b8 room[];
.visible .entry reverse(.param .u64 data)
{
    .reg .b32 %r<8>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [data];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ntid.x;
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    ld.global.u32 %r3, [%rd2];
    mov.u32 %r4, room;
    mad.lo.u32 %r5, %r1, 4, %r4;
    st.shared.u32 [%r5], %r3;
    barrier.sync 0;
    sub.u32 %r6, %r2, %r1;
    mad.lo.u32 %r6, %r6, 4, %r4;
    ld.shared.u32 %r7, [%r6+-4];
    st.global.u32 [%rd2], %r7;
    ret;
}
""",
    # Half of the threads leave before the barrier; the others meet there.
    "leavers": """
.visible .entry leavers(.param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %r<5>;
    .reg .b64 %rd<3>;
    .shared .align 4 .b32 count;
    mov.u32 %r1, %tid.x;
    and.b32 %r2, %r1, 1;
    setp.eq.u32 %p, %r2, 1;
    @%p exit;
    atom.shared.add.u32 %r3, [count], 1;
    bar.sync 0;
    ld.shared.u32 %r4, [count];
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd2, %r1, 4, %rd1;
    st.global.u32 [%rd2], %r4;
    ret;
}
""",
    # Histogram by atomics on global memory, in every form.
    "atomics": """
.visible .entry atomics(.param .u64 out)
{
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<3>;
    .reg .f64 %d<3>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    atom.global.add.u32 %r2, [%rd1], 1;
    red.global.add.u32 [%rd1+4], %r1;
    atom.global.max.s32 %r3, [%rd1+8], %r1;
    atom.global.min.u32 %r4, [%rd1+12], %r1;
    red.global.or.b32 [%rd1+16], %r1;
    atom.global.inc.u32 %r5, [%rd1+20], 9;
    atom.global.cas.b32 %r6, [%rd1+24], %r1, 1000;
    mov.f32 %f1, 0f3F000000;
    red.global.add.f32 [%rd1+28], %f1;
    mov.f64 %d1, 0d3FD0000000000000;
    red.global.add.f64 [%rd1+32], %d1;
    cvt.u64.u32 %rd2, %r1;
    atom.global.exch.b64 %rd3, [%rd1+40], %rd2;
    ret;
}
""",
    # Vectors, bytes, signs, generic addresses, local memory.
    "memory": """
.visible .entry memory(.param .u64 data, .param .align 4 .b8 pair[8])
{
    .reg .b16 %h<3>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<8>;
    .local .align 16 .b8 depot[32];
    ld.param.u64 %rd1, [data];
    cvta.to.global.u64 %rd1, %rd1;
    ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];
    mov.u64 %rd2, depot;
    cvta.local.u64 %rd3, %rd2;
    st.local.v2.u32 [%rd2+8], {%r2, %r1};
    ld.v2.u32 {%r5, %r6}, [%rd3+8];
    ld.global.s8 %r7, [%rd1+3];
    ld.global.u8 %h1, [%rd1+3];
    cvt.u32.u16 %r8, %h1;
    ld.param.v2.u32 {%r9, %r10}, [pair];
    mov.b64 %rd4, {%r9, %r10};
    mov.b64 {%r10, %r9}, %rd4;
    st.global.v2.u32 [%rd1+16], {%r5, %r6};
    st.global.v2.u32 [%rd1+24], {%r7, %r8};
    st.global.v2.u32 [%rd1+32], {%r9, %r10};
    st.global.u8 [%rd1+40], %r4;
    ret;
}
""",
    # A warp's sum by shuffles.
    "shuffle": """
.visible .entry shuffle(.param .u64 out)
{
    .reg .pred %p;
    .reg .b32 %r<6>;
    .reg .b64 %rd<3>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %r1;
    shfl.sync.bfly.b32 %r3, %r2, 16, 31, -1;
    add.u32 %r2, %r2, %r3;
    shfl.sync.bfly.b32 %r3, %r2, 8, 31, -1;
    add.u32 %r2, %r2, %r3;
    shfl.sync.bfly.b32 %r3, %r2, 4, 31, -1;
    add.u32 %r2, %r2, %r3;
    shfl.sync.bfly.b32 %r3, %r2, 2, 31, -1;
    add.u32 %r2, %r2, %r3;
    shfl.sync.bfly.b32 %r3, %r2, 1, 31, -1;
    add.u32 %r2, %r2, %r3;
    shfl.sync.up.b32 %r4|%p, %r1, 1, 0, -1;
    selp.b32 %r5, %r4, 999, %p;
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd2, %r1, 8, %rd1;
    st.global.v2.u32 [%rd2], {%r2, %r5};
    ret;
}
""",
    # Blocks and grids of three dimensions.
    "places": """
.visible .entry places(.param .u64 out)
{
    .reg .b32 %r<16>;
    .reg .b64 %rd<3>;
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %tid.y;
    mov.u32 %r3, %tid.z;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %ctaid.y;
    mov.u32 %r6, %ctaid.z;
    mov.u32 %r7, %nctaid.x;
    mov.u32 %r8, %nctaid.y;
    mad.lo.u32 %r9, %r6, %r8, %r5;
    mad.lo.u32 %r9, %r9, %r7, %r4;
    mov.u32 %r10, %ntid.z;
    mad.lo.u32 %r9, %r9, %r10, %r3;
    mov.u32 %r11, %ntid.y;
    mad.lo.u32 %r9, %r9, %r11, %r2;
    mov.u32 %r12, %ntid.x;
    mad.lo.u32 %r9, %r9, %r12, %r1;
    ld.param.u64 %rd1, [out];
    mad.wide.u32 %rd2, %r9, 4, %rd1;
    st.global.u32 [%rd2], %r9;
    ret;
}
""",
    # As a compiler writes it: line information, bounds, scopes, pragmas.
    "compiled": """
.visible .entry compiled(
	.param .u64 compiled_param_0,
	.param .u32 compiled_param_1
)
.maxntid 64, 1, 1
{
	.reg .pred 	%p<3>;
	.reg .b16 	%rs<2>;
	.reg .f32 	%f<4>;
	.reg .b32 	%r<8>;
	.reg .b64 	%rd<5>;
	// demoted variable
	.shared .align 4 .b8 _ZZ8compiledPfiE4tile[256];
	ld.param.u64 	%rd1, [compiled_param_0];
	ld.param.u32 	%r3, [compiled_param_1];
	cvta.to.global.u64 	%rd2, %rd1;
	mov.u32 	%r4, %tid.x;
	setp.lt.s32 	%p1, %r3, 1;
	@%p1 bra 	$L__BB0_3;
	mov.u32 	%r7, 0;
	.pragma "nounroll";
$L__BB0_2:
	mad.lo.s32 	%r5, %r7, 64, %r4;
	mul.wide.s32 	%rd3, %r5, 4;
	add.s64 	%rd4, %rd2, %rd3;
	ld.global.nc.f32 	%f1, [%rd4];
	{ .reg .b32 temporary; mov.b32 temporary, 0f3FC00000; mov.b32 %f2, temporary; }
	fma.rn.ftz.f32 	%f3, %f1, %f2, 0f40000000;
	st.global.f32 	[%rd4], %f3;
	add.s32 	%r7, %r7, 1;
	setp.ne.s32 	%p2, %r7, %r3;
	@%p2 bra 	$L__BB0_2;
$L__BB0_3:
	ret;

}
""",
    # Comparisons combined with predicates, of numbers and of what is none.
    "compare": """
.visible .entry compare(.param .u64 out, .param .f32 x, .param .f32 y)
{
    .reg .pred %p<9>;
    .reg .b32 %r<9>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [out];
    ld.param.f32 %f1, [x];
    ld.param.f32 %f2, [y];
    setp.lt.f32 %p1|%p2, %f1, %f2;
    setp.geu.f32 %p3, %f1, %f2;
    setp.ne.f32 %p4, %f1, %f2;
    setp.nan.f32 %p5, %f1, %f2;
    setp.gt.and.f32 %p6, %f1, 0f00000000, %p2;
    setp.gt.or.f32 %p7, %f1, 0f00000000, !%p2;
    xor.pred %p8, %p6, %p7;
    selp.b32 %r1, 1, 0, %p1;
    selp.b32 %r2, 2, 0, %p2;
    selp.b32 %r3, 4, 0, %p3;
    selp.b32 %r4, 8, 0, %p4;
    selp.b32 %r5, 16, 0, %p5;
    selp.b32 %r6, 32, 0, %p6;
    selp.b32 %r7, 64, 0, %p7;
    selp.b32 %r8, 128, 0, %p8;
    or.b32 %r1, %r1, %r2;
    or.b32 %r3, %r3, %r4;
    or.b32 %r5, %r5, %r6;
    or.b32 %r7, %r7, %r8;
    or.b32 %r1, %r1, %r3;
    or.b32 %r5, %r5, %r7;
    lop3.b32 %r1, %r1, %r5, 0, 0xFC;
    st.global.u32 [%rd1], %r1;
    ret;
}
""",
}


def program(gpu, name: str) -> c.c_void_p:
    return gpu.function(gpu.module(HEAD + PROGRAMS[name]), name)


def words(gpu, pointer: int, count: int) -> list[int]:
    return array.array("I", gpu.download(pointer, 4 * count)).tolist()


def test_divergence(gpu):
    out = gpu.allocate(4 * 333)
    gpu.launch(program(gpu, "collatz"), [1], [333], c.c_uint64(out))

    def steps(n: int) -> int:
        count = 0
        while n != 1:
            n = 3 * n + 1 if n % 2 else n // 2
            count += 1
        return count

    assert words(gpu, out, 333) == [steps(n + 1) for n in range(333)]


def test_barrier_and_dynamic_shared_memory(gpu):
    data = gpu.upload(array.array("I", range(200)).tobytes())
    gpu.launch(program(gpu, "reverse"), [1], [200], c.c_uint64(data), shared=800)
    assert words(gpu, data, 200) == list(reversed(range(200)))
    with pytest.raises(CudaError) as fault:
        gpu.launch(program(gpu, "reverse"), [1], [200], c.c_uint64(data), shared=796)
    assert fault.value.code == codes.ILLEGAL_ADDRESS


def test_leaving_before_a_barrier(gpu):
    out = gpu.upload(bytes(4 * 64))
    gpu.launch(program(gpu, "leavers"), [1], [64], c.c_uint64(out))
    assert words(gpu, out, 64) == [32, 0] * 32


def test_atomics(gpu):
    start = struct.pack("5I2IfdQ", 0, 0, 5, 50, 0, 0, 77, 0.0, 0.0, 9)
    out = gpu.upload(start)
    gpu.launch(program(gpu, "atomics"), [1], [100], c.c_uint64(out))
    result = struct.unpack("5I2IfdQ", gpu.download(out, len(start)))
    assert result == (100, 4950, 99, 0, 127, 0, 1000, 50.0, 25.0, 99)


def test_memory_of_every_kind(gpu):
    data = gpu.upload(struct.pack("4I", 0xF1020304, 2, 3, 0xABCD) + bytes(32))
    pair = (c.c_uint32 * 2)(11, 22)
    gpu.launch(program(gpu, "memory"), [1], [3], c.c_uint64(data), pair)
    assert words(gpu, data, 11)[4:] == [2, 0xF1020304, 0xFFFFFFF1, 0xF1, 22, 11, 0xCD]


def test_shuffles(gpu):
    out = gpu.allocate(8 * 64)
    gpu.launch(program(gpu, "shuffle"), [1], [64], c.c_uint64(out))
    result = words(gpu, out, 128)
    assert result[0::2] == [496] * 32 + [496 + 1024] * 32
    assert result[1::2] == [999, *range(31), 999, *range(32, 63)]


def test_three_dimensions(gpu):
    grid, block = [3, 2, 2], [4, 3, 2]
    total = math.prod(grid) * math.prod(block)
    out = gpu.allocate(4 * total)
    gpu.launch(program(gpu, "places"), grid, block, c.c_uint64(out))
    assert words(gpu, out, total) == list(range(total))


def test_a_compilers_manners(gpu):
    data = gpu.upload(array.array("f", range(192)).tobytes())
    function = program(gpu, "compiled")
    gpu.launch(function, [1], [64], c.c_uint64(data), c.c_int(3))
    result = array.array("f", gpu.download(data, 768))
    assert result.tolist() == [1.5 * i + 2 for i in range(192)]
    with pytest.raises(CudaError) as refused:
        gpu.launch(function, [1], [65], c.c_uint64(data), c.c_int(3))
    assert refused.value.code == codes.INVALID_VALUE


@pytest.mark.parametrize(
    ("x", "y", "expected"),
    [(1.0, 2.0, 1 + 8 + 64 + 128), (2.0, 1.0, 2 + 4 + 8 + 32 + 64), (math.nan, 1.0, 2 + 4 + 16)],
)
def test_comparisons(gpu, x, y, expected):
    out = gpu.allocate(4)
    gpu.launch(program(gpu, "compare"), [1], [1], c.c_uint64(out), c.c_float(x), c.c_float(y))
    assert words(gpu, out, 1) == [expected]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("ld.global.u32 %r1, [%rd1+4096];", codes.ILLEGAL_ADDRESS),
        ("st.global.u32 [%rd1+-4], %r1;", codes.ILLEGAL_ADDRESS),
        ("ld.global.u32 %r1, [%rd1+2];", codes.MISALIGNED),
        ("ld.u32 %r1, [0];", codes.ILLEGAL_ADDRESS),
        ("st.shared.u32 [%r1+64], %r1;", codes.ILLEGAL_ADDRESS),
        ("ld.local.u32 %r1, [%rd1];", codes.ILLEGAL_ADDRESS),
        ("atom.global.add.u32 %r1, [%rd1+4096], 1;", codes.ILLEGAL_ADDRESS),
        ("trap;", codes.LAUNCH_FAILED),
    ],
)
def test_faults_are_errors_not_crashes(gpu, line, code):
    pointer = gpu.allocate(4096)
    text = (
        f"{HEAD}.visible .entry wrong(.param .u64 at)\n{{\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n"
        f"ld.param.u64 %rd1, [at];\nmov.u32 %r1, 0;\n{line}\nret;\n}}\n"
    )
    with pytest.raises(CudaError) as fault:
        gpu.launch(gpu.function(gpu.module(text), "wrong"), [2], [64], c.c_uint64(pointer))
    assert fault.value.code == code


@pytest.mark.parametrize(
    ("body", "words_of_refusal"),
    [
        ("add.u64 %r1, %r1, %r1;", "%r1 is not a register of 64 bits"),
        ("add.u32 %r1, %r1;", "',' is expected"),
        ("add.u32 %r1, %r1, %x;", "%x is no register"),
        ("mul.u32 %r1, %r1, %r1;", "one of .lo, .hi and .wide"),
        ("wmma.load.a.sync %r1;", "not supported"),
        ("ld.param.u32 %r1, [at+8];", "outside of the parameters"),
        ("bra.uni nowhere;", "label nowhere is nowhere"),
        ("bar.sync 0, 32;", "part of the block"),
        ("@%r1 ret;", "%r1 is no predicate"),
        (".reg .b32 %r1;", "declared twice"),
        ("here: here: ret;", "declared twice"),
        ("cvt.f32.s32 %r1, %r1;", "rounding is expected"),
        ("shl.b32 %r1, %r1, 0f3F800000zz;", ""),
        ("call foo;", "not supported"),
        (".shared .b8 huge[9999999];", "bytes of shared memory"),
        ("vote.sync.all.pred %p, %p, -1;", "not supported"),
    ],
)
def test_what_is_not_in_the_subset_is_refused(gpu, body, words_of_refusal):
    text = f"{HEAD}.visible .entry k(.param .u64 at)\n{{\n.reg .b32 %r<2>;\n{body}\nret;\n}}\n"
    with pytest.raises(CudaError) as refused:
        gpu.module(text)
    assert refused.value.code == codes.INVALID_PTX
    assert words_of_refusal in str(refused.value)
    assert "line 7" in str(refused.value) or words_of_refusal == ""


def test_mutilated_ptx_is_refused_or_runs(gpu):
    """No text brings the library down, whatever is cut, doubled or turned."""
    generator = random.Random(7)
    source = (PTX / "matrix_product.ptx").read_text()
    refused = 0
    for _ in range(300):
        text = list(source)
        for _ in range(generator.randrange(1, 4)):
            at = generator.randrange(len(text))
            what = generator.randrange(4)
            if what == 0:
                del text[at : at + generator.randrange(1, 40)]
            elif what == 1:
                text[at] = chr(generator.randrange(1, 256))
            elif what == 2:
                text[at:at] = text[at : at + generator.randrange(1, 60)]
            else:
                text[at:at] = list(
                    generator.choice(["{", "}", "%r99", "[", ";", ".align", "0x", "9" * 30])
                )
        module = c.c_void_p()
        code = gpu.code(
            "cuModuleLoadData", c.byref(module), "".join(text).encode("latin-1") + b"\0"
        )
        assert code in (
            0,
            codes.INVALID_PTX,
            codes.UNSUPPORTED_PTX_VERSION,
            codes.NO_BINARY_FOR_GPU,
        )
        refused += code != 0
    assert refused > 100
