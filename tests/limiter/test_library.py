"""The libraries as files: what they need of a container, and what they leave to the driver."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from divvy.agent.inject.share_usage import MAX_SLOTS
from lab.target import CC, RUN
from tests.limiter.programs import compiled

OLDEST_GLIBC = (2, 17)
LIBRARIES = {"libcuda.so.1": "libcuda-driver.so.1", "libnvidia-ml.so.1": "libnvidia-ml-driver.so.1"}


def readelf(limiter: Path, option: str, name: str) -> str:
    command = ["readelf", "--wide", option, str(limiter / name)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("name", LIBRARIES)
def test_runs_on_any_glibc_from_2_17_on(limiter, name):
    needed = re.findall(r"GLIBC_(\d+)\.(\d+)", readelf(limiter, "--version-info", name))
    assert needed
    assert max((int(major), int(minor)) for major, minor in needed) <= OLDEST_GLIBC


@pytest.mark.parametrize(("name", "driver"), LIBRARIES.items())
def test_needs_only_the_drivers_library_and_the_c_library(limiter, name, driver):
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", readelf(limiter, "--dynamic", name)))
    assert driver in needed
    assert needed <= {driver, "libc.so.6", "libdl.so.2"}
    assert re.findall(r"SONAME.*\[(.*)\]", readelf(limiter, "--dynamic", name)) == [name]


@pytest.mark.parametrize(
    ("name", "prefix"), [("libcuda.so.1", "cu"), ("libnvidia-ml.so.1", "nvml")]
)
def test_exports_only_what_it_changes(limiter, name, prefix):
    table = readelf(limiter, "--dyn-syms", name)
    exported = [
        row[7]
        for row in map(str.split, table.splitlines())
        if len(row) == 8 and row[6].isdigit() and row[4] != "LOCAL"
    ]
    assert exported
    assert all(symbol.startswith(prefix) for symbol in exported)


def test_limits_a_linked_program(tenants, tmp_path):
    tenant = tenants(100)
    source = tmp_path / "linked.c"
    source.write_text(
        "#include <stdio.h>\n"
        "int cuInit(unsigned); int cuCtxCreate_v2(void **, unsigned, int);\n"
        "int cuMemAlloc_v2(unsigned long long *, unsigned long);\n"
        "int cuDriverGetVersion(int *);\n"
        "int main(void) { void *c; unsigned long long p; int v;\n"
        '    printf("%d ", cuInit(0)); printf("%d ", cuCtxCreate_v2(&c, 0, 0));\n'
        '    printf("%d ", cuDriverGetVersion(&v));\n'
        '    printf("%d\\n", cuMemAlloc_v2(&p, 200ul << 20)); }\n'
    )
    program, folder = tmp_path / "linked", tenant.library("libcuda.so.1").parent
    # As with the stub of a toolkit: any library of the driver's name.
    driver = tenant.driver.library("libcuda.so.1")
    subprocess.run([CC, "-o", program, source, driver, f"-Wl,-rpath,{folder}"], check=True)
    done = subprocess.run([*RUN, program], capture_output=True, text=True, check=True)
    assert done.stdout == "0 0 0 2\n"


def test_takes_one_slot_however_often_a_process_loads_it(tenants, tmp_path):
    program = compiled("reloads.c", tmp_path)
    command = [*RUN, program, tenants(100).library("libcuda.so.1"), str(MAX_SLOTS + 1)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_gives_nothing_on_a_gpu_that_the_limits_do_not_name(tenants):
    """After a reload of the driver a device node may be another GPU's, which somebody else has."""
    tenant = tenants(1024)  # of the first of two GPUs
    process = tenant.start(_ON_ANOTHER_GPU, context=False)
    out, errors = process.communicate(timeout=60)
    assert process.returncode == 0, out + errors
    assert json.loads(out) == {
        "cuCtxCreate_v2": 46,
        "cuDevicePrimaryCtxRetain": 46,
        "cuMemCreate": 2,
        "cuMemPoolCreate": 2,
        "cuMemAllocFromPoolAsync": 2,
    }
    assert errors.count("the limits of this share do not name this GPU") == 1
    assert tenant.smi("--query-gpu=memory.used", "--format=csv,noheader,nounits").split()[1] == "0"


_ON_ANOTHER_GPU = """
import json
cuda.init()
results = {}
def note(name, *arguments):
    results[name] = tried(lambda: cuda.call(name, *arguments))
handle, pointer, pool = c.c_void_p(), c.c_uint64(), c.c_void_p()
note("cuCtxCreate_v2", c.byref(handle), c.c_uint(0), 1)
note("cuDevicePrimaryCtxRetain", c.byref(handle), 1)
# Kind of memory, of handles; kind of place (a device), which one.
place = (c.c_int * 64)(1, 0, 1, 1)
note("cuMemCreate", c.byref(pointer), c.c_size_t(2 * MIB), place, c.c_uint64(0))
note("cuMemPoolCreate", c.byref(pool), place)
cuda.context()
cuda.call("cuDeviceGetDefaultMemPool", c.byref(pool), 1)
note("cuMemAllocFromPoolAsync", c.byref(pointer), c.c_size_t(2 * MIB), pool, None)
print(json.dumps(results))
"""
