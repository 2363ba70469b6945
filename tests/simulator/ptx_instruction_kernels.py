"""Kernels of one instruction each, written for every instruction of the table."""

import struct

from tests.simulator.ptx_instructions import CASES
from tests.simulator.ptx_modules import HEAD

# type of PTX → its code in Python's struct
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
# type of PTX → its register's, where that has another name
REGISTER = {"u16": "b16", "s16": "b16", "u32": "b32", "s32": "b32", "u64": "b64", "s64": "b64"}
# kind of operand that is no type of PTX → the type in which arrays hold it
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


# A module with one kernel for each instruction: k0, k1 and so on, in the table's order.
KERNELS = HEAD + "\n".join(kernel(n, *each[:3]) for n, each in enumerate(CASES.values()))
