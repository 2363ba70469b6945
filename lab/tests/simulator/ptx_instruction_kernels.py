"""Kernels of one instruction each, written for every instruction of the table."""

import struct

from lab.driver_clients.ptx_modules import HEAD
from lab.tests.simulator.ptx_instructions import CASES

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
STORED = {
    "any f16": "u16",
    "small f16": "u16",
    "any bf16": "u16",
    "any f16x2": "u32",
    "any bf16x2": "u32",
    "byte": "u32",
    "half": "u32",
    "small": "f32",
    "positive": "f32",
    "f32~": "f32",
}


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
            operands = ", ".join([name, *(operand for operand, _ in names[:-1])])
            lines += [f"    {text} {operands};", f"    st.global.{stored} [%at], {name};"]
        else:
            lines.append(f"    ld.global.{stored} {name}, [%at];")
    return "\n".join([*lines, "    ret;", "}"])


def _module(head: str, of_halves: bool) -> str:
    texts = [
        kernel(number, *case[:3])
        for number, case in enumerate(CASES.values())
        if ("f16" in case[0]) == of_halves
    ]
    return head + "\n".join(texts)


# Modules with one kernel for each instruction: k0, k1 and so on, in the table's order.
KERNELS = _module(HEAD, of_halves=False)
# bf16 has sums and differences from compute capability 9.0 on.
HALVES = _module(HEAD.replace("7.0", "7.8").replace("sm_75", "sm_90"), of_halves=True)
