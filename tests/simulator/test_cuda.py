"""libcuda: devices, memory over all processes, modules, launches, contexts, errors."""

import array
import ctypes as c
import os
import subprocess
import sys
from pathlib import Path

import pynvml as nvml
import pytest

from divvy.model.flat_file import gpu_uuid
from tests.simulator import cuda as codes
from tests.simulator.cuda import CudaError
from tests.simulator.driver_root import eventually

PTX = Path(__file__).parent / "ptx"
VECTOR_ADD = (PTX / "vector_add.ptx").read_text()
MATRIX_PRODUCT = (PTX / "matrix_product.ptx").read_text()


def fails(code: int):
    return pytest.raises(CudaError, match=f": {code}")


@pytest.fixture
def gpu(install):
    """A GPU with a current context."""
    cuda = install().cuda().init()
    cuda.context()
    return cuda


def add_vectors(cuda, length, claimed=None):
    function = cuda.function(cuda.module(VECTOR_ADD), "vector_add")
    a = array.array("f", range(length))
    b = array.array("f", (2 * i + 0.5 for i in range(length)))
    pointers = [cuda.upload(a.tobytes()), cuda.upload(b.tobytes()), cuda.allocate(4 * length)]
    arguments = [*(c.c_uint64(each) for each in pointers), c.c_int(claimed or length)]
    cuda.launch(function, [((claimed or length) + 255) // 256], [256], *arguments)
    result = array.array("f", cuda.download(pointers[2], 4 * length))
    return result == array.array("f", (x + y for x, y in zip(a, b, strict=True)))


def test_vector_addition(gpu):
    assert add_vectors(gpu, 50_000)


def test_tiled_matrix_product(gpu):
    n = 64
    a = array.array("f", ((i * 7 + 3) % 11 - 5 for i in range(n * n)))
    b = array.array("f", ((i * 5 + 1) % 13 - 6 for i in range(n * n)))
    function = gpu.function(gpu.module(MATRIX_PRODUCT), "matrix_product")
    pointers = [gpu.upload(a.tobytes()), gpu.upload(b.tobytes()), gpu.allocate(4 * n * n)]
    arguments = [*(c.c_uint64(each) for each in pointers), c.c_int(n)]
    gpu.launch(function, [n // 16, n // 16], [16, 16], *arguments)
    result = array.array("f", gpu.download(pointers[2], 4 * n * n))
    for row in range(0, n, 9):
        for column in range(n):
            exact = sum(a[row * n + k] * b[k * n + column] for k in range(n))
            assert result[row * n + column] == exact


def test_devices(install):
    cuda = install("H100-SXM5-80GB", 2).cuda()
    with fails(codes.NOT_INITIALIZED):
        cuda.count()
    cuda.init()
    assert cuda.count() == 2
    assert cuda.name(1) == "NVIDIA H100 80GB HBM3"
    assert cuda.uuid(1) == gpu_uuid("test", 1).removeprefix("GPU-")
    total = c.c_size_t()
    cuda.call("cuDeviceTotalMem_v2", c.byref(total), 0)
    assert total.value == 81559 << 20
    assert (cuda.attribute(75), cuda.attribute(76)) == (9, 0)
    assert (cuda.attribute(16), cuda.attribute(10), cuda.attribute(1)) == (132, 32, 1024)
    bus = c.create_string_buffer(20)
    cuda.call("cuDeviceGetPCIBusId", bus, 20, 1)
    assert bus.value == b"0000:0f:00.0"
    version = c.c_int()
    cuda.call("cuDriverGetVersion", c.byref(version))
    assert version.value == 12040
    with fails(codes.INVALID_DEVICE):
        cuda.name(2)
    with fails(codes.INVALID_VALUE):
        cuda.attribute(9999)


FIRST, SECOND, THIRD = (gpu_uuid("test", index) for index in range(3))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("1", [1]),
        ("2,0", [2, 0]),
        ("0,9,1", [0]),
        ("-1", []),
        ("none", []),
        (SECOND, [1]),
        (THIRD[:9], [2]),
        (f"{THIRD},{FIRST}", [2, 0]),
        ("GPU-", []),
        ("1,1", [1]),
        (f"0,{FIRST}", [0]),
    ],
)
def test_visible_devices(install, monkeypatch, value, expected):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if value is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    cuda = install("A100-SXM4-40GB", 3).cuda()
    assert cuda.code("cuInit", 0) == (0 if expected else codes.NO_DEVICE)
    if expected:
        uuids = [FIRST, SECOND, THIRD]
        found = [f"GPU-{cuda.uuid(index)}" for index in range(cuda.count())]
        assert found == [uuids[index] for index in expected]


def test_environment_makes_no_gpu_visible(install, monkeypatch):
    driver = install("A100-SXM4-40GB", 2)
    (driver.root / "dev/nvidia0").unlink()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", FIRST)
    monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", "all")
    assert driver.cuda().code("cuInit", 0) == codes.NO_DEVICE
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert run(driver, "print(name(0), count())").endswith(" 1")


@pytest.mark.parametrize(
    ("node", "code"), [("nvidiactl", 100), ("nvidia-uvm", 999), ("nvidia0", 100)]
)
def test_a_missing_node_is_told(install, node, code):
    driver = install()
    (driver.root / "dev" / node).unlink()
    assert driver.cuda().code("cuInit", 0) == code


def run(driver, line: str, **environment: str) -> str:
    script = (
        "import sys; from pathlib import Path; from tests.simulator.cuda import Cuda\n"
        "cuda = Cuda(Path(sys.argv[1])).init(); name = cuda.name; count = cuda.count\n" + line
    )
    command = [sys.executable, "-c", script, str(driver.library("libcuda.so.1"))]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **environment},
        cwd=Path(__file__).parents[2],
    )
    return done.stdout.strip()


@pytest.mark.usefixtures("administrator")
def test_mig_devices(install):
    driver = install("A100-SXM4-40GB", 1)
    driver.smi("-mig", "1")
    assert driver.cuda().code("cuInit", 0) == codes.NO_DEVICE
    driver.smi("mig", "-cgi", "3g.20gb,1g.5gb", "-C")
    uuids = [line.split("UUID: ")[1].rstrip(")") for line in driver.smi("-L").splitlines()[1:]]
    show = "print(count(), name(), cuda.uuid(), cuda.attribute(16))\n"
    show += "cuda.context(); print(cuda.memory())"
    text = run(driver, show)
    assert text.splitlines()[0] == f"1 NVIDIA A100-SXM4-40GB MIG 3g.20gb {uuids[0][4:]} 42"
    assert text.splitlines()[1] == f"({20096 << 20}, {20096 << 20})"
    for chosen in (uuids[1], uuids[1][:12], f"{uuids[1]},{uuids[0]}", f"MIG-{FIRST}/7/0"):
        text = run(driver, show, CUDA_VISIBLE_DEVICES=chosen)
        assert text.splitlines()[0] == f"1 NVIDIA A100-SXM4-40GB MIG 1g.5gb {uuids[1][4:]} 14"
    holder = driver.hold(4000, CUDA_VISIBLE_DEVICES=uuids[1])
    assert holder.stdout.readline() == "0\n"
    refused = driver.hold(1000, CUDA_VISIBLE_DEVICES=uuids[1])
    assert refused.stdout.readline() == f"{codes.OUT_OF_MEMORY}\n"
    elsewhere = driver.hold(19000, CUDA_VISIBLE_DEVICES=uuids[0])
    assert elsewhere.stdout.readline() == "0\n"


def test_two_processes_over_the_limit(install):
    driver = install("T4", 1)
    cuda = driver.cuda().init()
    cuda.context()
    free, total = cuda.memory()
    assert total == 16384 << 20 or free < total
    neighbour = driver.hold(9000)
    assert neighbour.stdout.readline() == "0\n"
    assert cuda.memory()[0] == free - (9000 << 20)
    with fails(codes.OUT_OF_MEMORY):
        cuda.allocate(9000 << 20)
    pointer = cuda.allocate(5000 << 20)
    assert sorted(driver.used_mib()) == [14000]
    neighbour.stdin.write("free\n")
    neighbour.stdin.flush()
    assert neighbour.stdout.readline() == "0\n"
    second = cuda.allocate(9000 << 20)
    cuda.free(pointer)
    cuda.free(second)
    assert cuda.memory()[0] == free
    neighbour.kill()


def test_a_killed_process_leaves_nothing(install):
    driver = install()
    holder = driver.hold(1234)
    assert holder.stdout.readline() == "0\n"
    assert driver.used_mib() == [1234]
    driver.nvml()
    (process,) = nvml.nvmlDeviceGetComputeRunningProcesses(nvml.nvmlDeviceGetHandleByIndex(0))
    assert (process.pid, process.usedGpuMemory) == (holder.pid, 1234 << 20)
    holder.kill()
    assert eventually(lambda: driver.used_mib() == [0])


def test_memory_calls(gpu):
    pointer = gpu.allocate(4096)
    gpu.call("cuMemsetD32_v2", c.c_uint64(pointer), 0x01020304, c.c_size_t(1024))
    gpu.call("cuMemsetD16_v2", c.c_uint64(pointer + 2), 0xABCD, c.c_size_t(1))
    gpu.call("cuMemsetD8_v2", c.c_uint64(pointer + 7), 0xEE, c.c_size_t(1))
    assert gpu.download(pointer, 8).hex() == "0403cdab040302ee"
    other = gpu.allocate(4096)
    gpu.call("cuMemcpyDtoD_v2", c.c_uint64(other), c.c_uint64(pointer), c.c_size_t(4096))
    assert gpu.download(other, 4096) == gpu.download(pointer, 4096)
    begin, size = c.c_uint64(), c.c_size_t()
    gpu.call("cuMemGetAddressRange_v2", c.byref(begin), c.byref(size), c.c_uint64(other + 99))
    assert (begin.value, size.value) == (other, 4096)
    for call in (
        lambda: gpu.download(pointer, 4097),
        lambda: gpu.download(pointer + 4096, 1),
        lambda: gpu.call("cuMemsetD32_v2", c.c_uint64(pointer + 1), 0, c.c_size_t(1)),
        lambda: gpu.free(pointer + 8),
        lambda: gpu.allocate(0),
        lambda: gpu.call("cuMemAlloc_v2", None, c.c_size_t(8)),
    ):
        with fails(codes.INVALID_VALUE):
            call()
    gpu.free(pointer)
    with fails(codes.INVALID_VALUE):
        gpu.free(pointer)
    host = c.c_void_p()
    gpu.call("cuMemAllocHost_v2", c.byref(host), c.c_size_t(64))
    c.memset(host, 7, 64)
    gpu.call("cuMemcpyHtoDAsync_v2", c.c_uint64(other), host, c.c_size_t(64), None)
    assert gpu.download(other, 64) == b"\x07" * 64
    gpu.call("cuMemFreeHost", host)


@pytest.mark.usefixtures("administrator")
def test_an_illegal_address_ends_the_context(install):
    driver = install()
    driver.nvml()
    watched = nvml.nvmlDeviceGetHandleByIndex(0)
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(watched, nvml.nvmlEventTypeXidCriticalError, events)
    cuda = driver.cuda().init()
    context = cuda.context()
    with fails(codes.ILLEGAL_ADDRESS):
        add_vectors(cuda, 1000, claimed=1100)
    assert nvml.nvmlEventSetWait(events, 2000).eventData == 31
    with fails(codes.ILLEGAL_ADDRESS):
        cuda.allocate(16)
    cuda.call("cuCtxDestroy_v2", context)
    cuda.context()
    assert add_vectors(cuda, 1000)


def test_contexts(gpu):
    first = c.c_void_p()
    gpu.call("cuCtxGetCurrent", c.byref(first))
    second = gpu.context()
    pointer = gpu.allocate(1 << 20)
    used = gpu.memory()[0]
    popped = c.c_void_p()
    gpu.call("cuCtxPopCurrent_v2", c.byref(popped))
    assert popped.value == second.value
    gpu.call("cuCtxPushCurrent_v2", second)
    gpu.call("cuCtxDestroy_v2", second)
    current = c.c_void_p()
    gpu.call("cuCtxGetCurrent", c.byref(current))
    assert current.value == first.value
    assert gpu.memory()[0] == used + (1 << 20)
    with fails(codes.INVALID_VALUE):
        gpu.free(pointer)
    with fails(201):
        gpu.call("cuCtxDestroy_v2", second)
    primary = c.c_void_p()
    gpu.call("cuDevicePrimaryCtxRetain", c.byref(primary), 0)
    again = c.c_void_p()
    gpu.call("cuDevicePrimaryCtxRetain", c.byref(again), 0)
    assert primary.value == again.value
    gpu.call("cuCtxSetCurrent", primary)
    gpu.allocate(64)
    gpu.call("cuDevicePrimaryCtxRelease_v2", 0)
    gpu.call("cuDevicePrimaryCtxRelease_v2", 0)
    with fails(709):
        gpu.call("cuCtxSynchronize")
    gpu.call("cuCtxSetCurrent", None)
    with fails(201):
        gpu.call("cuCtxSynchronize")


@pytest.mark.usefixtures("administrator")
def test_compute_modes(install):
    driver = install()
    cuda = driver.cuda().init()
    context = cuda.context()
    driver.smi("-c", "EXCLUSIVE_PROCESS")
    assert driver.hold(1).stdout.readline() == f"{codes.DEVICE_UNAVAILABLE}\n"
    cuda.context()
    assert cuda.attribute(20) == 3
    cuda.call("cuCtxDestroy_v2", context)
    driver.smi("-c", "2")
    with fails(codes.DEVICE_UNAVAILABLE):
        cuda.context()
    assert driver.hold(1).stdout.readline() == f"{codes.DEVICE_UNAVAILABLE}\n"
    driver.smi("-c", "0")
    assert driver.hold(1).stdout.readline() == "0\n"


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


def test_wrong_launches(gpu):
    function = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    arguments = [c.c_uint64(0)] * 3 + [c.c_int(0)]
    for grid, block in (([0], [32]), ([1], [0]), ([1], [1025]), ([1, 65536], [1]), ([1], [64, 32])):
        with fails(codes.INVALID_VALUE):
            gpu.launch(function, grid, block, *arguments)
    with fails(codes.INVALID_VALUE):
        gpu.launch(function, [1], [1], *arguments, shared=1 << 20)
    with fails(codes.INVALID_HANDLE):
        gpu.launch(c.c_void_p(8), [1], [1], *arguments)
    with fails(codes.INVALID_VALUE):
        gpu.call("cuLaunchKernel", function, *[c.c_uint(1)] * 6, c.c_uint(0), None, None, None)
    with fails(codes.NOT_FOUND):
        gpu.function(gpu.module(VECTOR_ADD), "other")
    gpu.launch(function, [1], [1], *arguments)


def test_the_old_way_of_launching(gpu):
    function = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    a = gpu.upload(array.array("f", range(64)).tobytes())
    result = gpu.allocate(256)
    for at, pointer in enumerate((a, a, result)):
        gpu.call("cuParamSetv", function, at * 8, c.byref(c.c_uint64(pointer)), c.c_uint(8))
    gpu.call("cuParamSeti", function, 24, c.c_uint(64))
    gpu.call("cuParamSetSize", function, c.c_uint(28))
    gpu.call("cuFuncSetBlockShape", function, 32, 1, 1)
    gpu.call("cuLaunchGridAsync", function, 2, 1, None)
    sums = array.array("f", gpu.download(result, 256))
    assert sums == array.array("f", (2 * i for i in range(64)))


def test_extra_parameters(gpu):
    function = gpu.function(gpu.module(VECTOR_ADD), "vector_add")
    a = gpu.upload(array.array("f", range(32)).tobytes())
    buffer = c.create_string_buffer(bytes(c.c_uint64(a)) * 3 + bytes(c.c_int(32)))
    size = c.c_size_t(28)
    extra = (c.c_void_p * 5)(1, c.addressof(buffer), 2, c.addressof(size), None)
    sizes = [c.c_uint(each) for each in (1, 1, 1, 32, 1, 1, 0)]
    gpu.call("cuLaunchKernel", function, *sizes, None, None, extra)
    assert array.array("f", gpu.download(a, 128))[31] == 62


def test_streams_and_events(gpu):
    stream, begin, end = c.c_void_p(), c.c_void_p(), c.c_void_p()
    gpu.call("cuStreamCreate", c.byref(stream), c.c_uint(1))
    gpu.call("cuEventCreate", c.byref(begin), c.c_uint(0))
    gpu.call("cuEventCreate", c.byref(end), c.c_uint(0))
    gpu.call("cuEventRecord", begin, stream)
    assert add_vectors(gpu, 100)
    gpu.call("cuEventRecord", end, stream)
    gpu.call("cuStreamWaitEvent", stream, end, c.c_uint(0))
    gpu.call("cuEventSynchronize", end)
    elapsed = c.c_float()
    gpu.call("cuEventElapsedTime", c.byref(elapsed), begin, end)
    assert elapsed.value > 0
    for call, handle in (("cuEventDestroy_v2", begin), ("cuStreamDestroy_v2", stream)):
        gpu.call(call, handle)
        with fails(codes.INVALID_HANDLE):
            gpu.call(call, handle)


def test_entry_points_by_name(gpu):
    found, status = c.c_void_p(), c.c_int()
    get = (
        "cuGetProcAddress_v2",
        b"cuMemAlloc",
        c.byref(found),
        12000,
        c.c_uint64(0),
        c.byref(status),
    )
    gpu.call(*get)
    assert (found.value, status.value) == (address(gpu, "cuMemAlloc_v2"), 0)
    gpu.call("cuGetProcAddress", b"cuCtxCreate", c.byref(found), 13000, c.c_uint64(0))
    assert found.value == address(gpu, "cuCtxCreate_v4")
    gpu.call("cuGetProcAddress", b"cuCtxCreate", c.byref(found), 12000, c.c_uint64(0))
    assert found.value == address(gpu, "cuCtxCreate_v2")
    assert gpu.code("cuGetProcAddress", b"cuNothing", c.byref(found), 12000, c.c_uint64(0)) == 500
    assert found.value is None
    assert gpu.code("cuGetExportTable", c.byref(found), b"0" * 16) == codes.NOT_FOUND
    assert gpu.code("cuGraphCreate") == codes.NOT_SUPPORTED
    text = c.c_char_p()
    gpu.call("cuGetErrorName", 700, c.byref(text))
    assert text.value == b"CUDA_ERROR_ILLEGAL_ADDRESS"
    gpu.call("cuGetErrorString", 2, c.byref(text))
    assert text.value == b"out of memory"
    assert gpu.code("cuGetErrorName", 12345, c.byref(text)) == codes.INVALID_VALUE


def address(cuda, name: str) -> int | None:
    return c.cast(getattr(cuda.library, name), c.c_void_p).value


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


@pytest.mark.usefixtures("administrator")
def test_bad_arithmetic_spoils_results(install):
    driver = install()
    cuda = driver.cuda().init()
    cuda.context()
    assert add_vectors(cuda, 5000)
    driver.sim("fault", "bad-math", "0")
    assert not any(add_vectors(cuda, 5000) for _ in range(3))
    driver.sim("fault", "clear", "0")
    assert add_vectors(cuda, 5000)


@pytest.mark.usefixtures("administrator")
def test_a_lost_gpu(install):
    driver = install(count=2)
    cuda = driver.cuda().init()
    cuda.context()
    driver.sim("fault", "lost", "0")
    with fails(codes.UNKNOWN):
        add_vectors(cuda, 10)
    assert run(driver, "print(count(), cuda.uuid())") == f"1 {SECOND[4:]}"


def test_work_shows_as_utilisation(install):
    driver = install()
    cuda = driver.cuda().init()
    cuda.context()
    driver.nvml()
    handle = nvml.nvmlDeviceGetHandleByIndex(0)
    assert nvml.nvmlDeviceGetUtilizationRates(handle).gpu == 0
    length = 1_000_000
    function = cuda.function(cuda.module(VECTOR_ADD), "vector_add")
    pointer = c.c_uint64(cuda.allocate(4 * length))
    for _ in range(8):
        cuda.launch(
            function, [(length + 255) // 256], [256], pointer, pointer, pointer, c.c_int(length)
        )
    assert eventually(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu > 0, 1)


def test_a_forked_child_has_no_cuda(install):
    driver = install()
    text = run(
        driver,
        "import os; cuda.context(); cuda.allocate(1 << 20)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    print(cuda.code('cuCtxSynchronize'), cuda.code('cuInit', 0), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0); cuda.allocate(1 << 20); print('whole')",
    )
    assert text == "3 3\nwhole"
    assert driver.used_mib() == [0]
