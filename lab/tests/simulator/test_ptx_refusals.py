"""PTX that goes wrong: what is not in the subset, faults at run time, mutilated texts."""

import ctypes as c
import random

import pytest

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import CudaError
from lab.driver_clients.ptx_modules import HEAD, ptx_module


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
def test_reports_faults_as_errors_without_crashing(kept_gpu, line, code):
    pointer = kept_gpu.allocate(4096)
    text = (
        f"{HEAD}.visible .entry wrong(.param .u64 at)\n{{\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n"
        f"ld.param.u64 %rd1, [at];\nmov.u32 %r1, 0;\n{line}\nret;\n}}\n"
    )
    with pytest.raises(CudaError) as fault:
        kept_gpu.launch(
            kept_gpu.function(kept_gpu.module(text), "wrong"), [2], [64], c.c_uint64(pointer)
        )
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
        ("call foo;", "foo is no function with a body in this module"),
        (".shared .b8 huge[9999999];", "bytes of shared memory"),
        ("vote.all.pred %p, %p;", "only the .sync form"),
        ("add.f16x2 %r1, %r1, 1;", "no immediates"),
        ("cvt.f16.f32 %r1, %r1;", "rounding is expected"),
    ],
)
def test_refuses_what_is_not_in_the_subset(kept_gpu, body, words_of_refusal):
    text = f"{HEAD}.visible .entry k(.param .u64 at)\n{{\n.reg .b32 %r<2>;\n{body}\nret;\n}}\n"
    with pytest.raises(CudaError) as refused:
        kept_gpu.module(text)
    assert refused.value.code == codes.INVALID_PTX
    assert words_of_refusal in str(refused.value)
    assert "line 7" in str(refused.value) or words_of_refusal == ""


def test_refuses_a_call_that_does_not_fit_or_recurses(kept_gpu):
    functions = (
        ".func one(.param .b32 a)\n{\nret;\n}\n"
        ".func again()\n{\ncall again;\nret;\n}\n"
        ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);\n"
    )
    for body, words in (
        ("call one;", "does not fit"),
        (".param .b64 a; .param .b64 b; call one, (a, b);", "does not fit"),
        (".param .b16 a; call one, (a);", "does not fit"),
        ("call one, (at);", "at is no .param of the caller"),
        ("call again;", "again calls itself"),
        ("call vprintf;", "vprintf takes two addresses"),
        (".reg .b64 %t; call %t, (at), at;", "at is no .param"),
        (".reg .b64 %t; .param .b64 a; call %t, (a), at;", "at is no prototype"),
        (".reg .b64 %t; ld.global.u64 %t, [one];", "one is a function"),
    ):
        text = f"{HEAD}{functions}.visible .entry k(.param .u64 at)\n{{\n{body}\nret;\n}}\n"
        with pytest.raises(CudaError) as refused:
            kept_gpu.module(text)
        assert refused.value.code == codes.INVALID_PTX
        assert words in str(refused.value)


@pytest.mark.parametrize("name", ["matrix_product", "functions", "indirect_calls", "printing"])
def test_refuses_or_runs_mutilated_ptx(kept_gpu, name):
    """No text brings the library down, whatever is cut, doubled or turned."""
    generator = random.Random(7)
    source = ptx_module(name)
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
        code = kept_gpu.code(
            "cuModuleLoadData", c.byref(module), "".join(text).encode("latin-1") + b"\0"
        )
        assert code in (
            0,
            codes.INVALID_PTX,
            codes.UNSUPPORTED_PTX_VERSION,
            codes.INVALID_IMAGE,
        )
        refused += code != 0
    assert refused > 100
