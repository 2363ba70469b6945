"""The CUDA driver API's answers: what a device is, and what becomes of right and wrong calls.

A garbage handle may end the process in any driver, so none is passed; wrong numbers, sizes and
names are.
"""

from __future__ import annotations

import ctypes as c

from lab.kit.answers.cuda_library import Cuda
from lab.kit.answers.recording import Recording

_ATTRIBUTES = 150
_CODES = 1000
_MIB = 1 << 20
_BREAKS = b"""
.version 7.0
.target sm_75
.address_size 64
.visible .entry fine(.param .u64 place)
{
    .reg .u32 %r<2>;
    .reg .u64 %rd<2>;
    ld.param.u64 %rd1, [place];
    mov.u32 %r1, %tid.x;
    st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry breaks()
{
    .reg .u32 %r<2>;
    .reg .u64 %rd<2>;
    mov.u64 %rd1, 16;
    mov.u32 %r1, 1;
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
_TOO_NEW = b".version 99.0\n.target sm_75\n.address_size 64\n"
_NO_TARGET = b".version 7.0\n.target sm_999\n.address_size 64\n"
_NONSENSE = b"this is no program"
_ORDINALS = (0, -1, 99)


def record(library: str, recording: Recording) -> None:
    """Ask one library everything, a broken context in the end."""
    cuda = Cuda(library, recording)
    _before(cuda)
    _device(cuda)
    _names(cuda)
    context = c.c_void_p()
    cuda.ask("cuDevicePrimaryCtxRetain", "0", c.byref(context), 0)
    cuda.ask("cuCtxSetCurrent", "primary", context)
    _context(cuda)
    _memory(cuda)
    _other_memory(cuda)
    _streams(cuda)
    module = _modules(cuda)
    _launches(cuda, module)
    _broken(cuda, module)


def _before(cuda: Cuda) -> None:
    cuda.number("cuDeviceGetCount", "", c.c_int, when="before cuInit")
    cuda.number("cuCtxGetDevice", "", c.c_int, when="before cuInit")
    cuda.number("cuDriverGetVersion", "", c.c_int, when="before cuInit")
    cuda.ask("cuInit", "1", c.c_uint(1))
    cuda.ask("cuInit", "0", c.c_uint(0))
    cuda.number("cuDriverGetVersion", "", c.c_int)
    cuda.ask("cuDriverGetVersion", "NULL", None)
    cuda.number("cuDeviceGetCount", "", c.c_int)
    cuda.number("cuCtxGetDevice", "", c.c_int, when="without a context")
    cuda.number("cuMemAlloc_v2", "1 MiB", c.c_uint64, c.c_size_t(_MIB), when="without a context")
    cuda.ask("cuCtxSynchronize", "", when="without a context")


def _device(cuda: Cuda) -> None:
    for ordinal in _ORDINALS:
        cuda.number("cuDeviceGet", str(ordinal), c.c_int, ordinal)
    text, raw = c.create_string_buffer(256), (c.c_ubyte * 16)()
    cuda.ask("cuDeviceGetName", "0", text, 256, 0, value=lambda: text.value)
    cuda.ask("cuDeviceGetName", "99", text, 256, 99)
    for name in ("cuDeviceGetUuid", "cuDeviceGetUuid_v2"):
        cuda.ask(name, "0", raw, 0, value=lambda: list(raw))
    cuda.number("cuDeviceTotalMem_v2", "0", c.c_size_t, 0)
    cuda.number("cuDeviceTotalMem_v2", "99", c.c_size_t, 99)
    for which in (*range(-1, _ATTRIBUTES), 9999):
        cuda.number("cuDeviceGetAttribute", f"{which}, 0", c.c_int, which, 0)
    cuda.number("cuDeviceGetAttribute", "1, 99", c.c_int, 1, 99)
    major, minor = c.c_int(), c.c_int()
    both = (c.byref(major), c.byref(minor))
    cuda.ask("cuDeviceComputeCapability", "0", *both, 0, value=lambda: [major.value, minor.value])
    properties = (c.c_int * 14)()
    cuda.ask("cuDeviceGetProperties", "0", properties, 0, value=lambda: list(properties))
    cuda.ask("cuDeviceGetPCIBusId", "0", text, 256, 0, value=lambda: text.value)
    cuda.number("cuDeviceGetByPCIBusId", "nonsense", c.c_int, b"nonsense")
    cuda.number("cuDeviceGetByPCIBusId", "ffff:ff:1f.0", c.c_int, b"ffff:ff:1f.0")
    cuda.number("cuDeviceCanAccessPeer", "0, 0", c.c_int, 0, 0)
    for which in (1, 2, 3, 4, 99):
        cuda.number("cuDeviceGetP2PAttribute", f"{which}, 0, 0", c.c_int, which, 0, 0)
    pool = c.c_void_p()
    for name in ("cuDeviceGetDefaultMemPool", "cuDeviceGetMemPool"):
        cuda.ask(name, "0", c.byref(pool), 0)
    flags, active = c.c_uint(), c.c_int()
    cuda.ask(
        "cuDevicePrimaryCtxGetState",
        "0",
        0,
        c.byref(flags),
        c.byref(active),
        value=lambda: [flags.value, active.value],
    )


def _names(cuda: Cuda) -> None:
    for name in ("cuGetErrorName", "cuGetErrorString"):
        for code in range(_CODES):
            text = c.c_char_p()
            cuda.ask(name, str(code), code, c.byref(text), value=lambda text=text: text.value)
    pointer, status = c.c_void_p(), c.c_int()
    for name, version in (("cuMemAlloc", 12000), ("cuMemAlloc", 2000), ("cuNonsense", 12000)):
        arguments = (name.encode(), c.byref(pointer), version, c.c_uint64(0))
        label = f"{name}, {version}"
        cuda.ask(
            "cuGetProcAddress_v2", label, *arguments, c.byref(status), value=lambda: status.value
        )


def _context(cuda: Cuda) -> None:
    cuda.number("cuCtxGetDevice", "", c.c_int)
    cuda.number("cuCtxGetFlags", "", c.c_uint)
    cuda.number("cuCtxGetCacheConfig", "", c.c_int)
    cuda.number("cuCtxGetSharedMemConfig", "", c.c_int)
    version = c.c_uint()
    outputs = (None, c.byref(version))
    cuda.ask("cuCtxGetApiVersion", "current", *outputs, value=lambda: version.value)
    for limit in (0, 1, 2, 3, 4, 5, 99):
        cuda.number("cuCtxGetLimit", str(limit), c.c_size_t, limit)
    cuda.ask("cuCtxSetLimit", "99, 1", 99, c.c_size_t(1))
    least, greatest = c.c_int(), c.c_int()
    cuda.ask(
        "cuCtxGetStreamPriorityRange",
        "",
        c.byref(least),
        c.byref(greatest),
        value=lambda: [least.value, greatest.value],
    )
    cuda.ask("cuCtxSynchronize", "")


def _memory(cuda: Cuda) -> None:
    free, total = c.c_size_t(), c.c_size_t()
    outputs = (c.byref(free), c.byref(total))
    cuda.ask(
        "cuMemGetInfo_v2", "", *outputs, value=lambda: {"free": free.value, "total": total.value}
    )
    for label, size in (("0", 0), ("2^60", 1 << 60)):
        cuda.ask("cuMemAlloc_v2", label, c.byref(c.c_uint64()), c.c_size_t(size))
    place = c.c_uint64()
    cuda.ask("cuMemAlloc_v2", "1 MiB", c.byref(place), c.c_size_t(_MIB))
    base, length = c.c_uint64(), c.c_size_t()
    inside = c.c_uint64(place.value + 4096)
    cuda.ask(
        "cuMemGetAddressRange_v2",
        "inside",
        c.byref(base),
        c.byref(length),
        inside,
        value=lambda: [base.value == place.value, length.value],
    )
    host = c.create_string_buffer(b"divvy", 16)
    back = c.create_string_buffer(16)
    cuda.ask("cuMemsetD32_v2", "1024 words", place, c.c_uint(0x01020304), c.c_size_t(1024))
    cuda.ask("cuMemcpyHtoD_v2", "16 bytes", place, host, c.c_size_t(16))
    cuda.ask("cuMemcpyDtoH_v2", "16 bytes", back, place, c.c_size_t(16), value=lambda: back.value)
    cuda.ask("cuMemcpyHtoD_v2", "0 bytes", place, host, c.c_size_t(0))
    for which, kind in ((2, c.c_uint), (8, c.c_uint), (9, c.c_int), (10, c.c_uint), (99, c.c_uint)):
        attribute = kind()
        label = f"{which}, device memory"
        cuda.ask(
            "cuPointerGetAttribute",
            label,
            c.byref(attribute),
            which,
            place,
            value=lambda attribute=attribute: attribute.value,
        )
    address = c.c_uint64(c.addressof(host))
    cuda.ask("cuPointerGetAttribute", "2, host memory", c.byref(c.c_uint()), 2, address)
    cuda.ask("cuMemFree_v2", "1 MiB", place)
    cuda.ask("cuMemFree_v2", "1 MiB again", place)
    cuda.ask("cuMemFree_v2", "NULL", c.c_uint64(0))
    cuda.ask("cuMemFree_v2", "inside nothing", c.c_uint64(16))


def _other_memory(cuda: Cuda) -> None:
    place, pitch = c.c_uint64(), c.c_size_t()
    for element in (4, 3):
        code = cuda.ask(
            "cuMemAllocPitch_v2",
            f"100 by 10 of {element}",
            c.byref(place),
            c.byref(pitch),
            c.c_size_t(100),
            c.c_size_t(10),
            element,
            value=lambda: pitch.value,
        )
        if code == 0:
            cuda.ask("cuMemFree_v2", "pitched", place)
    host, flags = c.c_void_p(), c.c_uint()
    cuda.ask("cuMemHostAlloc", "4096, 0", c.byref(host), c.c_size_t(4096), 0)
    cuda.ask("cuMemHostGetFlags", "", c.byref(flags), host, value=lambda: flags.value)
    cuda.ask("cuMemFreeHost", "", host)
    cuda.ask("cuMemHostAlloc", "4096, 99", c.byref(host), c.c_size_t(4096), 0x99)
    # A CUmemAllocationProp: pinned memory of device 0.
    wanted = (c.c_int * 8)(1, 0, 1, 0)
    size = c.c_size_t()
    for option in (0, 1):
        cuda.ask(
            "cuMemGetAllocationGranularity",
            f"device 0, {option}",
            c.byref(size),
            wanted,
            option,
            value=lambda: size.value,
        )
    handle = c.c_uint64()
    for label, bytes_ in (("2 MiB", 2 * _MIB), ("1 byte", 1)):
        code = cuda.ask(
            "cuMemCreate", label, c.byref(handle), c.c_size_t(bytes_), wanted, c.c_uint64(0)
        )
        if code == 0:
            cuda.ask("cuMemRelease", label, handle)
    code = cuda.ask("cuMemAllocAsync", "1 MiB", c.byref(place), c.c_size_t(_MIB), None)
    if code == 0:
        cuda.ask("cuMemFreeAsync", "1 MiB", place, None)
    cuda.ask("cuCtxSynchronize", "", when="after cuMemFreeAsync")


def _streams(cuda: Cuda) -> None:
    stream, flags, priority = c.c_void_p(), c.c_uint(), c.c_int()
    cuda.ask("cuStreamCreate", "99", c.byref(stream), 99)
    if cuda.ask("cuStreamCreate", "1", c.byref(stream), 1) == 0:
        cuda.ask("cuStreamQuery", "", stream)
        cuda.ask("cuStreamSynchronize", "", stream)
        cuda.ask("cuStreamGetFlags", "", stream, c.byref(flags), value=lambda: flags.value)
        outputs = (stream, c.byref(priority))
        cuda.ask("cuStreamGetPriority", "", *outputs, value=lambda: priority.value)
        start, other, passed = c.c_void_p(), c.c_void_p(), c.c_float()
        cuda.ask("cuEventCreate", "0", c.byref(start), 0)
        cuda.ask("cuEventCreate", "2", c.byref(other), 2)
        cuda.ask("cuEventCreate", "99", c.byref(c.c_void_p()), 0x99)
        cuda.ask("cuEventQuery", "never recorded", start)
        cuda.ask("cuEventElapsedTime", "never recorded", c.byref(passed), start, start)
        cuda.ask("cuEventRecord", "", start, stream)
        cuda.ask("cuEventRecord", "without timing", other, stream)
        cuda.ask("cuEventSynchronize", "", start)
        cuda.ask("cuEventQuery", "", start)
        cuda.ask("cuEventElapsedTime", "without timing", c.byref(passed), start, other)
        cuda.ask("cuEventDestroy_v2", "", start)
        cuda.ask("cuEventDestroy_v2", "without timing", other)
        cuda.ask("cuStreamDestroy_v2", "", stream)
    graph, executable = c.c_void_p(), c.c_void_p()
    cuda.ask("cuGraphCreate", "99", c.byref(graph), 99)
    if cuda.ask("cuGraphCreate", "0", c.byref(graph), 0) == 0:
        nodes = c.c_size_t()
        cuda.ask("cuGraphGetNodes", "", graph, None, c.byref(nodes), value=lambda: nodes.value)
        instantiation = (
            "cuGraphInstantiateWithFlags",
            "empty",
            c.byref(executable),
            graph,
            c.c_uint64(0),
        )
        if cuda.ask(*instantiation) == 0:
            cuda.ask("cuGraphLaunch", "empty", executable, None)
            cuda.ask("cuGraphExecDestroy", "", executable)
        cuda.ask("cuGraphDestroy", "", graph)


def _modules(cuda: Cuda) -> c.c_void_p:
    module = c.c_void_p()
    for label, text in (
        ("nonsense", _NONSENSE),
        ("too new", _TOO_NEW),
        ("another target", _NO_TARGET),
        ("empty", b""),
        ("two kernels", _BREAKS),
    ):
        cuda.ask("cuModuleLoadData", label, c.byref(module), text + b"\0")
    cuda.ask("cuModuleGetFunction", "no name", c.byref(c.c_void_p()), module, b"nothing")
    place, size = c.c_uint64(), c.c_size_t()
    cuda.ask("cuModuleGetGlobal_v2", "no name", c.byref(place), c.byref(size), module, b"nothing")
    return module


def _launches(cuda: Cuda, module: c.c_void_p) -> None:
    function, place = c.c_void_p(), c.c_uint64()
    cuda.ask("cuModuleGetFunction", "fine", c.byref(function), module, b"fine")
    for which in (*range(10), 99):
        cuda.number("cuFuncGetAttribute", str(which), c.c_int, which, function)
    blocks = ("cuOccupancyMaxActiveBlocksPerMultiprocessor", "256, 0")
    cuda.number(*blocks, c.c_int, function, 256, c.c_size_t(0))
    cuda.number(blocks[0], "2048, 0", c.c_int, function, 2048, c.c_size_t(0))
    cuda.ask("cuMemAlloc_v2", "1 MiB", c.byref(place), c.c_size_t(_MIB), when="for a launch")
    arguments = (c.c_void_p * 1)(c.addressof(place))
    for label, grid, block, shared in (
        ("32 threads", 1, 32, 0),
        ("no block", 0, 32, 0),
        ("no thread", 1, 0, 0),
        ("2048 threads", 1, 2048, 0),
        ("16 MiB shared", 1, 32, 16 * _MIB),
    ):
        size = (grid, 1, 1, block, 1, 1, shared)
        cuda.ask("cuLaunchKernel", label, function, *size, None, arguments, None)
    cuda.ask("cuCtxSynchronize", "", when="after launches")
    words = (c.c_uint32 * 32)()
    cuda.ask(
        "cuMemcpyDtoH_v2",
        "what a kernel wrote",
        words,
        place,
        c.c_size_t(128),
        value=lambda: list(words) == list(range(32)),
    )
    cuda.ask("cuMemFree_v2", "1 MiB", place, when="after a launch")


def _broken(cuda: Cuda, module: c.c_void_p) -> None:
    function, after = c.c_void_p(), "after an illegal address"
    cuda.ask("cuModuleGetFunction", "breaks", c.byref(function), module, b"breaks")
    cuda.ask("cuLaunchKernel", "breaks", function, *(1, 1, 1, 1, 1, 1, 0), None, None, None)
    cuda.ask("cuCtxSynchronize", "", when=after)
    cuda.ask("cuCtxSynchronize", "", when=f"again {after}")
    cuda.number("cuMemAlloc_v2", "1 MiB", c.c_uint64, c.c_size_t(_MIB), when=after)
    free, total = c.c_size_t(), c.c_size_t()
    cuda.ask("cuMemGetInfo_v2", "", c.byref(free), c.byref(total), when=after)
    cuda.ask("cuModuleUnload", "", module, when=after)
    cuda.ask("cuLaunchKernel", "again", function, *(1, 1, 1, 1, 1, 1, 0), None, None, None)
    cuda.number("cuDeviceGetCount", "", c.c_int, when=after)
    cuda.number("cuCtxGetDevice", "", c.c_int, when=after)
    cuda.ask("cuDevicePrimaryCtxReset_v2", "0", 0, when=after)
    cuda.number("cuMemAlloc_v2", "1 MiB", c.c_uint64, c.c_size_t(_MIB), when="after the reset")
