"""The driver's own limits of memory (r615): a control group has no more of a GPU than its limit."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pynvml as nvml
import pytest

from lab.driver_clients.control_groups import control_group, removed, start_within
from lab.driver_clients.driver_root import HOLDER, OTHER_VERSION, DriverRoot, eventually

VERSION = "615.71.09"
GRANTED, OUT_OF_MEMORY = "0\n", "2\n"
MIB = 1 << 20
WHOLE_MIB = 40960
pytestmark = pytest.mark.usefixtures("administrator")


@pytest.fixture
def group() -> Iterator[Path]:
    with control_group() as folder:
        yield folder


@pytest.fixture
def driver(group: Path, install: Callable[..., DriverRoot]) -> DriverRoot:
    assert group.is_dir()  # made before: what runs in it has ended when it is removed
    return install(count=2, version=VERSION)


def within(driver: DriverRoot, group: Path, *command: str) -> subprocess.Popen[str]:
    """Start a program in a control group."""
    process = start_within(group, *command)
    driver.processes.append(process)
    return process


def hold(driver: DriverRoot, group: Path, mib: int) -> subprocess.Popen[str]:
    library = str(driver.library("libcuda.so.1"))
    return within(driver, group, sys.executable, "-S", str(HOLDER), library, str(mib))


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


def limit(driver: DriverRoot, group: Path, hard: str, soft: str = "0", gpu: str = "0") -> None:
    options = ("-n", str(group), "--soft-limit", soft, "--hard-limit", hard, "-i", gpu)
    assert driver.smi("memory-limits", "--set", *options) == "All done.\n"


def test_limits_all_processes_of_a_group_together(driver: DriverRoot, group: Path) -> None:
    limit(driver, group, "1000")
    assert first_line(hold(driver, group, 1001)) == OUT_OF_MEMORY
    holder = hold(driver, group, 600)
    assert first_line(holder) == GRANTED
    assert first_line(hold(driver, group, 600)) == OUT_OF_MEMORY
    assert first_line(hold(driver, group, 400)) == GRANTED
    holder.kill()
    holder.wait()
    assert eventually(lambda: first_line(hold(driver, group, 600)) == GRANTED)
    # Others have what there is.
    assert first_line(driver.hold(20000)) == GRANTED


def test_applies_the_limit_of_a_parent_group(driver: DriverRoot, group: Path) -> None:
    limit(driver, group, "1000")
    limit(driver, group / "below", "max")
    assert first_line(hold(driver, group, 500)) == GRANTED
    assert first_line(hold(driver, group / "below", 501)) == OUT_OF_MEMORY
    limit(driver, group / "below", "100")
    assert first_line(hold(driver, group / "below", 101)) == OUT_OF_MEMORY
    assert first_line(hold(driver, group / "below", 100)) == GRANTED


def test_applies_the_limit_of_a_distant_ancestor(driver: DriverRoot, group: Path) -> None:
    """Who may make groups makes them below its own, as many as it likes."""
    limit(driver, group, "1000")
    deep = group / "below"
    folders = []
    try:
        for _ in range(40):
            deep /= "d"
            deep.mkdir()
            folders.append(deep)
        process = hold(driver, deep, 1001)
        assert first_line(process) == OUT_OF_MEMORY
        process.kill()
        process.wait()
    finally:
        for folder in reversed(folders):
            assert eventually(partial(removed, folder))


def test_limits_one_gpu_alone(driver: DriverRoot, group: Path) -> None:
    limit(driver, group, "100", gpu="1")
    assert first_line(hold(driver, group, 1000)) == GRANTED


def test_total_and_free_are_the_limits(driver: DriverRoot, group: Path) -> None:
    limit(driver, group, "1000")
    assert first_line(hold(driver, group, 300)) == GRANTED
    asks = (
        "import ctypes, sys; cuda = ctypes.CDLL(sys.argv[1]); cuda.cuInit(0)\n"
        "context, free, total = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()\n"
        "cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0)\n"
        "cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))\n"
        "print(free.value >> 20, total.value >> 20)"
    )
    library = str(driver.library("libcuda.so.1"))
    asked = within(driver, group, sys.executable, "-S", "-c", asks, library)
    assert first_line(asked) == "700 1000\n"


def test_nvml_shows_a_group_its_limit_and_others_the_gpu(driver: DriverRoot, group: Path) -> None:
    limit(driver, group, "1000")
    assert first_line(hold(driver, group, 300)) == GRANTED
    smi = str(driver.root / "usr/bin/nvidia-smi")
    query = ("--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits", "-i", "0")
    assert first_line(within(driver, group, smi, *query)) == "1000, 300\n"
    total, used = driver.smi(*query).split(", ")
    assert int(total) == WHOLE_MIB
    assert int(used) >= 300


def test_reads_back_and_removes_a_limit(driver: DriverRoot, group: Path) -> None:
    get = ("memory-limits", "--get", "--namespace", str(group), "-i", "0")
    none = f"namespace: {group}\nsoft limit: 0 MiB\nhard limit: max\ncurrent used: 0 MiB\n"
    assert driver.smi(*get) == none
    limit(driver, group, "2000", soft="1000")
    assert first_line(hold(driver, group, 300)) == GRANTED
    assert driver.smi(*get).splitlines()[1:] == [
        "soft limit: 1000 MiB",
        "hard limit: 2000 MiB",
        "current used: 300 MiB",
    ]
    limit(driver, group, "max")
    assert "hard limit: max" in driver.smi(*get)
    assert first_line(hold(driver, group, 3000)) == GRANTED


def test_nvml_sets_and_gets_in_bytes(driver: DriverRoot, group: Path) -> None:
    driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    path = os.fsencode(group)
    asked = nvml.c_nvmlSetMemoryLimits_v1_t(nameSpace=path, softLimit=0, hardLimit=512 * MIB)
    nvml.nvmlDeviceSetMemoryLimits_v1(gpu, asked)
    assert first_line(hold(driver, group, 513)) == OUT_OF_MEMORY
    limits = nvml.c_nvmlGetMemoryLimits_v1_t(nameSpace=path)
    nvml.nvmlDeviceGetMemoryLimits_v1(gpu, limits)
    assert (limits.softLimit, limits.hardLimit, limits.currentUsed) == (0, 512 * MIB, 0)


def test_refuses_invalid_limits(driver: DriverRoot, group: Path) -> None:
    library = driver.nvml()
    gpu = nvml.nvmlDeviceGetHandleByIndex(0)

    def answer(path: bytes | None, soft: int, hard: int) -> int:
        asked = nvml.c_nvmlSetMemoryLimits_v1_t(nameSpace=path, softLimit=soft, hardLimit=hard)
        return int(library.nvmlDeviceSetMemoryLimits_v1(gpu, ctypes.byref(asked)))

    path = os.fsencode(group)
    assert answer(path, 2 * MIB, MIB) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert answer(None, 0, MIB) == nvml.NVML_ERROR_INVALID_ARGUMENT
    assert answer(path + b"/nowhere", 0, MIB) == nvml.NVML_ERROR_NOT_FOUND
    assert answer(b"/tmp", 0, MIB) == nvml.NVML_ERROR_NOT_SUPPORTED
    assert library.nvmlDeviceSetMemoryLimits_v1(gpu, None) == nvml.NVML_ERROR_INVALID_ARGUMENT
    for wrong in ((), ("--set", "-n", str(group)), ("--get",), ("--set", "--get", "-n", "/")):
        driver.smi("memory-limits", *wrong, rc=2)


def test_refuses_a_limit_in_mig_mode(driver: DriverRoot, group: Path) -> None:
    driver.smi("-i", "0", "-mig", "1")
    options = ("-n", str(group), "--soft-limit", "0", "--hard-limit", "100", "-i", "0")
    assert "Not Supported" in driver.smi("memory-limits", "--set", *options, rc=3)


def test_root_alone_sets_and_everybody_reads(driver: DriverRoot, group: Path) -> None:
    limit(driver, group, "1000")
    script = (
        "import ctypes, os, sys\n"
        "class Limits(ctypes.Structure):\n"
        "    _fields_ = [('path', ctypes.c_char_p)] + [(n, ctypes.c_ulonglong) for n in 'shu']\n"
        "nvml, gpu = ctypes.CDLL(sys.argv[1]), ctypes.c_void_p()\n"
        "nvml.nvmlInit_v2(); nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(gpu))\n"
        "os.setuid(65534)\n"
        "limits = ctypes.byref(Limits(sys.argv[2].encode(), 0, 1 << 30, 0))\n"
        "print(nvml.nvmlDeviceSetMemoryLimits_v1(gpu, limits), end=' ')\n"
        "print(nvml.nvmlDeviceGetMemoryLimits_v1(gpu, limits))"
    )
    library = str(driver.library("libnvidia-ml.so.1"))
    command = [sys.executable, "-S", "-c", script, library, str(group)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"{nvml.NVML_ERROR_NO_PERMISSION} {nvml.NVML_SUCCESS}\n"
    assert "hard limit: 1000 MiB" in driver.smi("memory-limits", "--get", "-n", str(group))


def test_removes_a_limit_with_its_group(driver: DriverRoot, group: Path) -> None:
    limit(driver, group / "below", "100")
    (group / "below").rmdir()
    (group / "below").mkdir()
    assert first_line(hold(driver, group / "below", 1000)) == GRANTED


def test_forgets_limits_when_the_driver_is_reloaded(
    group: Path, install: Callable[..., DriverRoot]
) -> None:
    driver = install(version=VERSION)
    limit(driver, group, "100")
    driver.sim("driver", OTHER_VERSION)
    assert first_line(hold(driver, group, 1000)) == GRANTED


def test_lacks_the_functions_in_an_older_driver(
    group: Path, install: Callable[..., DriverRoot]
) -> None:
    driver = install()
    library = driver.nvml()
    assert not hasattr(library, "nvmlDeviceSetMemoryLimits_v1")
    assert not hasattr(library, "nvmlDeviceGetMemoryLimits_v1")
    driver.smi("memory-limits", "--get", "-n", str(group), rc=2)
