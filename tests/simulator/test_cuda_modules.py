"""Modules: PTX that does not load, machine code, variables."""

import array
import ctypes as c

import pytest

from tests.simulator import cuda as codes
from tests.simulator.cuda import CudaError, fails
from tests.simulator.vector_add import VECTOR_ADD


@pytest.mark.parametrize(
    ("ptx", "code", "words"),
    [
        ("int main;", codes.INVALID_PTX, "line 1"),
        (".version 99.0\n.target sm_50\n", codes.UNSUPPORTED_PTX_VERSION, "99.0"),
        (".version 7.0\n.target sm_100\n", codes.NO_BINARY_FOR_GPU, "sm_100"),
        (
            VECTOR_ADD.replace("add.f32         %f3, %f2, %f1", "tex.1d.v4.f32.s32 %f3, [a, %r1]"),
            codes.INVALID_PTX,
            "line 36: tex.1d.v4.f32.s32: the opcode is not supported",
        ),
        (VECTOR_ADD.replace("add.f32", "add.rz.f32"), codes.INVALID_PTX, "add.rz.f32: .rz is not"),
        (VECTOR_ADD.replace("%f3, %f2", "%f3, %r2"), codes.INVALID_PTX, ""),
        (VECTOR_ADD.replace("bra        $done", "bra $nowhere"), codes.INVALID_PTX, "$nowhere"),
        (VECTOR_ADD[:-20], codes.INVALID_PTX, ""),
    ],
)
def test_ptx_that_does_not_load_says_where(gpu, ptx, code, words):
    if "%r2" in ptx and code == codes.INVALID_PTX and words == "":
        ptx = ptx.replace("add.f32         %f3, %r2", "add.f32         %f3, %rd2")
    with pytest.raises(CudaError) as refused:
        gpu.module(ptx)
    assert refused.value.code == code
    assert words in str(refused.value)


def test_machine_code_is_refused_by_name(gpu):
    for image in (b"\x7fELF" + b"\0" * 60, b"\xb1\x43\x62\x46" + b"\0" * 60):
        made = c.c_void_p()
        assert gpu.code("cuModuleLoadData", c.byref(made), image) == codes.NO_BINARY_FOR_GPU


def test_module_variables(gpu):
    module = gpu.module(
        ".version 6.0\n.target sm_50\n.address_size 64\n"
        ".global .align 4 .b32 table[4] = {1, 2, 3, -4};\n"
        ".const .align 8 .f64 half = 0.5;\n"
        ".visible .entry twice()\n{\n.reg .b32 %r<4>;\n.reg .b64 %rd<4>;\n"
        "mov.u32 %r1, %tid.x;\nmul.wide.u32 %rd1, %r1, 4;\nmov.u64 %rd2, table;\n"
        "add.s64 %rd3, %rd2, %rd1;\nld.global.u32 %r2, [%rd3];\nadd.s32 %r2, %r2, %r2;\n"
        "st.global.u32 [%rd3], %r2;\nret;\n}\n"
    )
    pointer, size = c.c_uint64(), c.c_size_t()
    gpu.call("cuModuleGetGlobal_v2", c.byref(pointer), c.byref(size), module, b"table")
    assert size.value == 16
    gpu.launch(gpu.function(module, "twice"), [1], [4])
    assert array.array("i", gpu.download(pointer.value, 16)).tolist() == [2, 4, 6, -8]
    gpu.call("cuModuleGetGlobal_v2", c.byref(pointer), c.byref(size), module, b"half")
    assert array.array("d", gpu.download(pointer.value, 8)).tolist() == [0.5]
    gpu.call("cuModuleUnload", module)
    with fails(codes.INVALID_HANDLE):
        gpu.call("cuModuleUnload", module)
