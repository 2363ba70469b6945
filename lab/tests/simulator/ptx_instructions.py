"""The instructions of PTX that tests try, each with a model of it in Python's arithmetic."""

import math
import struct
from collections.abc import Callable
from fractions import Fraction

INTEGERS = ["u16", "s16", "u32", "s32", "u64", "s64"]
# instruction → (instruction, kinds of its operands, kind of its result, model)
CASES: dict[str, tuple[str, list[str], str, object]] = {}


def case(text: str, inputs: list[str], output: str, model: object) -> None:
    """Enter an instruction; its model returns None if the result is not compared."""
    CASES[text] = (text, inputs, output, model)


def wrap(value: int, kind: str) -> int:
    """Keep the low bits of a number, as a register of this type does."""
    bits = int(kind[1:])
    value &= (1 << bits) - 1
    return value - (1 << bits) if kind[0] == "s" and value >> (bits - 1) else value


def clamp(value: int, kind: str) -> int:
    """Return the number of this type that is nearest."""
    bits = int(kind[1:])
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind[0] == "s" else (0, (1 << bits) - 1)
    return max(low, min(high, value))


def f32(value: float) -> float:
    """Round a number to single precision."""
    try:
        return struct.unpack("f", struct.pack("f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)


def int_to_f32(value: int) -> float:
    """Convert a number to single precision in one rounding; by way of a double it would be two."""
    size = abs(value)
    extra = max(0, size.bit_length() - 24)
    low = size & ((1 << extra) - 1)
    kept = size >> extra
    half = 1 << extra >> 1
    kept += extra > 0 and (low > half or (low == half and kept & 1))
    return math.copysign(float(kept << extra), value) if value else 0.0


def quotient(a: int, b: int) -> int:
    """Divide and drop the fraction, where Python would round down."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def shifted(a: int, by: int, kind: str) -> int:
    """Shift to the right, by the type's width or more too: then only the sign is left."""
    return a >> min(by, int(kind[1:]) - 1) if kind[0] == "s" or by < int(kind[1:]) else 0


def signed_field(a: int, position: int, length: int) -> int:
    """Extract a field of bits and extend its sign."""
    if length == 0:
        return 0
    # Above the word, its sign goes on.
    field = (
        (a >> min(position, 31)) & ((1 << length) - 1) if length < 64 else a >> min(position, 31)
    )
    top = a >> min(position + length - 1, 31) & 1
    return wrap(field | (-1 << length if top else 0), "s32")


def highest(a: int) -> int:
    """Return the place of the highest bit that is not the sign, or -1 of 32 bits."""
    return ((~a if a < 0 else a).bit_length() - 1) & 0xFFFFFFFF


def left_shift(a: int, kind: str) -> int:
    """Return by how much a number can be shifted until that bit is the highest one."""
    position = highest(a)
    return position if position == 0xFFFFFFFF else int(kind[1:]) - 1 - position


def neighbour(value: float, kind: str, up: bool) -> float:
    """Return the next float of this type."""
    if kind == "f64":
        return math.nextafter(value, math.inf if up else -math.inf)
    bits = struct.unpack("i", struct.pack("f", value))[0]
    order = bits if bits >= 0 else -(bits & 0x7FFFFFFF)
    order += 1 if up else -1
    bits = order if order >= 0 else -order | 0x80000000
    return struct.unpack("f", struct.pack("I", bits & 0xFFFFFFFF))[0]


def directed(exact: Fraction, kind: str, mode: str) -> float:
    """Round down (rm), up (rp) or towards zero (rz)."""
    value = f32(float(exact)) if kind == "f32" else float(exact)
    down = mode == "rm" or (mode == "rz" and exact > 0)
    while Fraction(value) > exact if down else Fraction(value) < exact:
        value = neighbour(value, kind, up=not down)
    while True:  # the double on the way may have been rounded past one
        closer = neighbour(value, kind, up=down)
        if Fraction(closer) > exact if down else Fraction(closer) < exact:
            return value
        value = closer


def directed_root(a: float, kind: str, mode: str) -> float:
    """Take a square root and round it down (rm, rz) or up (rp)."""
    if a < 0:
        return math.nan
    value = f32(math.sqrt(a)) if kind == "f32" else math.sqrt(a)
    up = mode == "rp"
    while Fraction(value) ** 2 < a if up else Fraction(value) ** 2 > a:
        value = neighbour(value, kind, up)
    while True:
        closer = neighbour(value, kind, not up)
        if closer < 0 or (Fraction(closer) ** 2 < a if up else Fraction(closer) ** 2 > a):
            return value
        value = closer


def permuted(a: int, b: int, pick: int) -> int:
    """Pick four of eight bytes, or the signs of them."""
    octets = struct.pack("II", a, b)
    selection = []
    for n in range(4):
        choice = pick >> 4 * n & 15
        value = octets[choice & 7]
        selection.append((0xFF if value & 0x80 else 0) if choice & 8 else value)
    return struct.unpack("I", bytes(selection))[0]


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
        for s in (t, f"s{t[1:]}"):
            case(f"mad.lo.cc.{s}", [s, s, s], s, lambda a, b, k, s=s: wrap(a * b + k, s))
            case(
                f"mad.hi.cc.{s}",
                [s, s, s],
                s,
                lambda a, b, k, s=s: wrap((a * b >> int(s[1:])) + k, s),
            )
    case("bfe.s32", ["s32", "byte", "byte"], "s32", signed_field)
    for t in ("u32", "s32", "u64", "s64"):
        case(f"bfind.{t}", [t], "u32", highest)
        case(f"bfind.shiftamt.{t}", [t], "u32", lambda a, t=t: left_shift(a, t))


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


def _roundings() -> None:
    models: dict[str, Callable[[Fraction, Fraction], Fraction | None]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "div": lambda a, b: a / b if b else None,
    }
    for t in ("f32", "f64"):
        for mode in ("rz", "rm", "rp"):
            for name, model in models.items():
                case(
                    f"{name}.{mode}.{t}",
                    [t, t],
                    t,
                    lambda a, b, t=t, m=mode, e=model: (
                        None
                        if (exact := e(Fraction(a), Fraction(b))) is None
                        else directed(exact, t, m)
                    ),
                )
            case(
                f"rcp.{mode}.{t}",
                [t],
                t,
                lambda a, t=t, m=mode: directed(1 / Fraction(a), t, m) if a else None,
            )
            case(f"sqrt.{mode}.{t}", [t], t, lambda a, t=t, m=mode: directed_root(a, t, m))
            case(
                f"fma.{mode}.{t}",
                [t, t, t],
                t,
                lambda a, b, k, t=t, m=mode: directed(
                    Fraction(a) * Fraction(b) + Fraction(k), t, m
                ),
            )


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


def _bytes_and_pairs() -> None:
    case("prmt.b32", ["u32", "u32", "half"], "u32", permuted)
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


def half(value: float, kind: str) -> int:
    """Round to a float of 16 bits: its bits."""
    fraction, bias = (10, 15) if kind == "f16" else (7, 127)
    if math.isnan(value):
        return 0x7FFF
    sign = 0x8000 if math.copysign(1, value) < 0 else 0
    infinity = (2 * bias + 1) << fraction
    if math.isinf(value):
        return sign | infinity
    exponent = max(math.frexp(value)[1] - 1 if value else 1 - bias, 1 - bias)
    # Python's round takes the even one of two neighbours, as the hardware does.
    bits = (exponent + bias - 1 << fraction) + round(
        Fraction(abs(value)) * Fraction(2) ** (fraction - exponent)
    )
    return sign | min(bits, infinity)


def single(bits: int, kind: str) -> float:
    """Return what a float of 16 bits is worth."""
    if kind == "f16":
        return float(struct.unpack("e", struct.pack("H", bits))[0])
    return float(struct.unpack("f", struct.pack("I", bits << 16))[0])


def each_half(model: Callable[..., int]) -> Callable[..., int]:
    """Apply a model to both halves of words."""

    def both(*operands: int) -> int:
        low, high = (
            model(*(operand >> shift & 0xFFFF for operand in operands)) for shift in (0, 16)
        )
        return high << 16 | low

    return both


def _halves() -> None:
    for t in ("f16", "bf16"):
        models: dict[str, tuple[int, Callable[..., int]]] = {
            "add": (2, lambda a, b, t=t: half(single(a, t) + single(b, t), t)),
            "sub": (2, lambda a, b, t=t: half(single(a, t) - single(b, t), t)),
            "mul": (2, lambda a, b, t=t: half(single(a, t) * single(b, t), t)),
            "fma.rn": (3, lambda a, b, k, t=t: _fused(a, b, k, t)),
            "min": (2, lambda a, b, t=t: min(a, b, key=lambda operand: _order(operand, t))),
            "max": (2, lambda a, b, t=t: max(a, b, key=lambda operand: _order(operand, t))),
            "neg": (1, lambda a: a ^ 0x8000),
            "abs": (1, lambda a: a & 0x7FFF),
        }
        for name, (count, model) in models.items():
            case(f"{name}.{t}", [f"any {t}"] * count, "u16", model)
            case(f"{name}.{t}x2", [f"any {t}x2"] * count, "u32", each_half(model))
        for mode in ("rn", "rz"):
            case(
                f"cvt.{mode}.{t}x2.f32",
                ["f32", "f32"],
                "u32",
                lambda a, b, t=t, m=mode: _narrow(a, t, m) << 16 | _narrow(b, t, m),
            )
            case(f"cvt.{mode}.{t}.f32", ["f32"], "u16", lambda a, t=t, m=mode: _narrow(a, t, m))
        case(f"cvt.f32.{t}", [f"any {t}"], "f32", lambda a, t=t: single(a, t))
    case("ex2.approx.f16", ["small f16"], "u16", lambda a: half(2.0 ** single(a, "f16"), "f16"))
    case(
        "tanh.approx.f16", ["small f16"], "u16", lambda a: half(math.tanh(single(a, "f16")), "f16")
    )
    case("cvt.rn.f16.f64", ["f64"], "u16", lambda a: half(a, "f16"))
    case("cvt.f64.f16", ["any f16"], "f64", lambda a: single(a, "f16"))
    for t in INTEGERS:
        case(f"cvt.rn.f16.{t}", [t], "u16", lambda a: half(float(a), "f16"))
        case(f"cvt.rzi.{t}.f16", ["small f16"], t, lambda a, t=t: clamp(int(single(a, "f16")), t))
    case("cvt.rni.f16.f16", ["small f16"], "u16", lambda a: half(_rounded(single(a, "f16")), "f16"))


def _rounded(value: float) -> float:
    return math.copysign(round(value), value)


def _order(bits: int, kind: str) -> tuple[float, int]:
    return single(bits, kind), -(bits >> 15)


def _fused(a: int, b: int, c: int, kind: str) -> int:
    exact = Fraction(single(a, kind)) * Fraction(single(b, kind)) + Fraction(single(c, kind))
    product_sign = (a ^ b) & 0x8000
    if exact == 0:
        return 0x8000 if product_sign and c & 0x8000 else 0
    return half(exact, kind)  # type: ignore[arg-type]


def _narrow(value: float, kind: str, mode: str) -> int:
    nearest = half(value, kind)
    if mode == "rn" or abs(single(nearest, kind)) <= abs(value):
        return nearest
    return nearest - 1


_arithmetic()
_floats()
_roundings()
_halves()
_conversions()
_bytes_and_pairs()
