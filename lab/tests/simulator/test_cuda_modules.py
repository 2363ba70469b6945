"""Modules: PTX that does not load, machine code, variables."""

import array
import ctypes as c

import pytest

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import Cuda, CudaError, fails
from lab.driver_clients.vector_add import VECTOR_ADD


@pytest.mark.parametrize(
    ("ptx", "code", "words"),
    [
        ("int main;", codes.INVALID_IMAGE, "line 1"),
        (".version 99.0\n.target sm_50\n", codes.UNSUPPORTED_PTX_VERSION, "99.0"),
        (".version 7.0\n.target sm_100\n", codes.INVALID_PTX, "sm_100"),
        (
            VECTOR_ADD.replace("add.f32         %f3, %f2, %f1", "tex.1d.v4.f32.s32 %f3, [a, %r1]"),
            codes.INVALID_PTX,
            "line 36: tex.1d.v4.f32.s32: the opcode is not supported",
        ),
        (
            VECTOR_ADD.replace("add.f32", "add.rnx.f32"),
            codes.INVALID_PTX,
            "add.rnx.f32: .rnx is not",
        ),
        (VECTOR_ADD.replace("%f3, %f2", "%f3, %r2"), codes.INVALID_PTX, ""),
        (VECTOR_ADD.replace("bra        $done", "bra $nowhere"), codes.INVALID_PTX, "$nowhere"),
        (VECTOR_ADD[:-20], codes.INVALID_PTX, ""),
    ],
)
def test_says_where_ptx_does_not_load(gpu, ptx, code, words):
    if "%r2" in ptx and code == codes.INVALID_PTX and words == "":
        ptx = ptx.replace("add.f32         %f3, %r2", "add.f32         %f3, %rd2")
    with pytest.raises(CudaError) as refused:
        gpu.module(ptx)
    assert refused.value.code == code
    assert words in str(refused.value)


def test_refuses_machine_code_by_name(gpu):
    for image in (b"\x7fELF" + b"\0" * 60, b"\xb1\x43\x62\x46" + b"\0" * 60):
        module = c.c_void_p()
        assert gpu.code("cuModuleLoadData", c.byref(module), image) == codes.NO_BINARY_FOR_GPU


def test_reads_and_writes_module_variables(gpu):
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


MIB = 1 << 20
HEAP, SHARED_OBJECT_FAILED = 2, 303
HEADER = ".version 7.0\n.target sm_75\n.address_size 64\n"


def globals_of(*mib: int) -> str:
    """Write a module of nothing but variables."""
    lines = [f".global .align 8 .b8 big{n}[{size * MIB}];" for n, size in enumerate(mib)]
    return HEADER + "\n".join(lines)


def test_charges_memory_for_variables_of_modules(gpu):
    before = gpu.memory()[0]
    module = gpu.module(globals_of(60, 40) + "\n.const .b32 four = 4;")
    assert before - gpu.memory()[0] == 100 * MIB + 512
    address, size = c.c_uint64(), c.c_size_t()
    gpu.call("cuModuleGetGlobal_v2", c.byref(address), c.byref(size), module, b"big0")
    assert gpu.download(address.value + 60 * MIB - 4, 4) == bytes(4)
    gpu.call("cuModuleUnload", module)
    assert gpu.memory()[0] == before
    held = gpu.allocate(before - 50 * MIB)
    with fails(codes.OUT_OF_MEMORY):
        gpu.module(globals_of(60))
    gpu.free(held)
    context = gpu.context()
    gpu.module(globals_of(60))
    gpu.call("cuCtxDestroy_v2", context)
    assert gpu.memory()[0] == before


def test_charges_library_variables_in_each_context_that_uses_them(gpu):
    before, library, module = gpu.memory()[0], c.c_void_p(), c.c_void_p()
    none = (None, None, 0)
    text = globals_of(60).encode() + b"\0"
    gpu.call("cuLibraryLoadData", c.byref(library), text, *none, *none)
    assert gpu.memory()[0] == before
    for used in (60, 120):
        gpu.call("cuLibraryGetModule", c.byref(module), library)
        assert before - gpu.memory()[0] == used * MIB
        gpu.context()
    gpu.call("cuLibraryUnload", library)
    assert gpu.memory()[0] == before


def test_allocates_the_heap_of_kernels_with_the_first_module(gpu):
    before, size = gpu.memory()[0], c.c_size_t()
    context = gpu.context()
    gpu.call("cuCtxGetLimit", c.byref(size), HEAP)
    assert size.value == 8 * MIB  # and that is part of every context
    gpu.call("cuCtxSetLimit", HEAP, c.c_size_t(108 * MIB))
    assert gpu.memory()[0] == before
    gpu.module(HEADER)
    assert before - gpu.memory()[0] == 100 * MIB
    gpu.call("cuCtxSetLimit", HEAP, c.c_size_t(208 * MIB))
    assert before - gpu.memory()[0] == 200 * MIB
    with fails(codes.OUT_OF_MEMORY):
        gpu.call("cuCtxSetLimit", HEAP, c.c_size_t(1 << 40))
    gpu.call("cuCtxGetLimit", c.byref(size), HEAP)
    assert size.value == 208 * MIB
    gpu.call("cuCtxDestroy_v2", context)
    assert gpu.memory()[0] == before
    gpu.context()
    gpu.call("cuCtxSetLimit", HEAP, c.c_size_t(1 << 40))
    with fails(SHARED_OBJECT_FAILED):
        gpu.module(HEADER)


PTX_INPUT, CUBIN_INPUT = 1, 0
USES = f"""{HEADER}.extern .func (.param .b32 r) seven();
.visible .entry uses(.param .u64 out)
{{
.reg .b32 %r<2>;
.reg .b64 %rd<2>;
.param .b32 r;
call (r), seven;
ld.param.b32 %r1, [r];
ld.param.u64 %rd1, [out];
st.global.u32 [%rd1], %r1;
ret;
}}
"""
SEVEN = f"{HEADER}.visible .func (.param .b32 r) seven()\n{{\nst.param.b32 [r], 7;\nret;\n}}\n"


def link(gpu: Cuda, *parts: str) -> c.c_void_p:
    """Link PTX."""
    state = c.c_void_p()
    gpu.call("cuLinkCreate_v2", 0, None, None, c.byref(state))
    for part in parts:
        text = part.encode()
        none = (b"part", 0, None, None)
        add = ("cuLinkAddData_v2", state, PTX_INPUT, text, c.c_size_t(len(text)), *none)
        gpu.call(*add)
    return state


def test_links_parts_to_an_image(gpu):
    state, image, size, module = link(gpu, USES, SEVEN), c.c_void_p(), c.c_size_t(), c.c_void_p()
    gpu.call("cuLinkComplete", state, c.byref(image), c.byref(size))
    gpu.call("cuModuleLoadData", c.byref(module), c.string_at(image, size.value))
    gpu.call("cuLinkDestroy", state)
    out = gpu.allocate(4)
    gpu.launch(gpu.function(module, "uses"), [1], [1], c.c_uint64(out))
    assert gpu.download(out, 4) == b"\7\0\0\0"
    with fails(codes.INVALID_HANDLE):
        gpu.call("cuLinkDestroy", state)


def test_refuses_to_link_incomplete_or_wrong_parts(gpu):
    state, image = link(gpu, USES), c.c_void_p()
    with fails(codes.INVALID_PTX):  # a function is missing
        gpu.call("cuLinkComplete", state, c.byref(image), None)
    none = (b"part", 0, None, None)
    with fails(codes.NO_BINARY_FOR_GPU):
        gpu.call("cuLinkAddData_v2", state, CUBIN_INPUT, b"ELF", c.c_size_t(3), *none)
    gpu.call("cuLinkDestroy", state)
