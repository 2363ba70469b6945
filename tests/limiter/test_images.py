"""How much memory the variables of a program's image take, under the sanitizers."""

from __future__ import annotations

import random
import struct
import subprocess
from pathlib import Path

import pytest

from lab.target import RUN, SANITIZERS
from tests.limiter.programs import compiled
from tests.limiter.tenant import LIMITER


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("images")
    return compiled("images.c", folder, *SANITIZERS, str(LIMITER / "cuda/images.c"))


def measured(program: Path, tmp_path: Path, image: bytes) -> int:
    file = tmp_path / "image"
    file.write_bytes(image)
    done = subprocess.run([*RUN, program, file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


HEAD = ".version 8.0\n.target sm_70\n.address_size 64\n"


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("", 0),
        (".global .u32 one;", 4),
        (".visible .global .align 16 .b8 field[1000];", 1000),
        (".const .f64 table[3][5];", 120),
        (".global .v4 .f32 vectors[10];", 160),
        (".global .u16 first, second[3], third;", 10),
        (".global .align 8 .u64 filled[2] = {1, 2};\n.global .b8 more[5];", 21),
        (".visible .entry f(.param .u64 p) {\n.reg .f32 %f1;\nld.global.f32 %f1, [p];\n}", 0),
        (".shared .align 4 .b8 fast[4096];\n.global .s8 one;", 1),
        (".global .b8 whole[18446744073709551615];\n.global .b8 and_more[8];", 2**64 - 1),
        (".global/* so many: */.b8 field[1000];", 1000),
        ("/**/.global.align 16.b8 field // more\n [ 1000 ];", 1000),
        (".visible.global.b8 field[1000];", 1000),
        (".global .b8 field[0x3e8], binary[0b1000], octal[010];", 1016),
        (".global .u32 first = 1, second[2] = {3, 4}, third[1000];", 4012),
        (".global .f16x2 pairs[10];\n.global .bf16 halves[10];", 60),
        ("// .global .b8 old[1000];\n/* .global .b8 older[1000]; */", 0),
        ('.file 1 "a .global .b8 file[1000];"\n.global .b8 one;', 1),
        (".entry f(.param .u64 .ptr .global .align 8 p, .param .b32 n) {\nret;\n}", 0),
        (".global .b8 field[1000] /*", 1000),
        (".global .b8 open[", 0),
        (".global", 0),
    ],
)
def test_adds_up_the_variables_of_ptx(program, tmp_path, text, size):
    assert measured(program, tmp_path, (HEAD + text).encode()) == size


def cubin(sections: dict[str, int]) -> bytes:
    """Make an ELF file with sections of so many bytes that are not in the file."""
    names = b"\0" + b"".join(name.encode() + b"\0" for name in sections) + b".shstrtab\0"
    rows, at = [struct.pack("<IIQQQQIIQQ", *(0,) * 10)], 1
    for name, size in sections.items():
        rows.append(struct.pack("<IIQQQQIIQQ", at, 8, 3, 0, 64, size, 0, 0, 1, 0))
        at += len(name) + 1
    rows.append(struct.pack("<IIQQQQIIQQ", at, 3, 0, 0, 64, len(names), 0, 0, 1, 0))
    head = (
        b"\x7fELF\x02\x01\x01"
        + bytes(9)
        + struct.pack(
            "<HHIQQQIHHHHHH",
            2,
            190,
            1,
            0,
            0,
            64 + len(names),
            0,
            64,
            0,
            0,
            64,
            len(rows),
            len(rows) - 1,
        )
    )
    return head + names + b"".join(rows)


def test_adds_up_the_variables_of_a_cubin(program, tmp_path):
    sections = {".nv.global": 1 << 30, ".nv.constant3": 4096, ".nv.shared.f": 9999, ".text.f": 512}
    assert measured(program, tmp_path, cubin(sections)) == (1 << 30) + 4096


def test_reads_no_byte_beyond_a_broken_image(program, tmp_path):
    whole, generator = cubin({".nv.global": 100}), random.Random(3)
    for _ in range(60):
        image = bytearray(whole[: generator.randrange(4, len(whole) + 1)])
        for _ in range(generator.randrange(4)):
            image[generator.randrange(4, len(image)) if len(image) > 4 else 0] = (
                generator.randrange(256)
            )
        measured(program, tmp_path, bytes(image))


def test_reports_nothing_for_bundled_images(program, tmp_path):
    assert measured(program, tmp_path, struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 0)) == 0
