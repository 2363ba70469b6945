"""Programs whose streams wait for the host or for each other, or capture."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

import pytest

from lab.driver_clients.ptx_modules import FOLDER
from lab.target import RUN
from tests.limiter.programs import compiled


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("stream_programs.c", tmp_path_factory.mktemp("streams"))


def run(programs: Path, library: Path, program: str) -> str:
    done = subprocess.run(
        [*RUN, programs, library, program, FOLDER / "sleep.ptx"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


RIGHT = {
    "host function": "done",
    "wait value": "done",
    "capture": "0 failed",
    "capture to graph": "0 failed",
    "capture beside launches": "0 failed",
    "cancelled launch": "done",
}


@pytest.mark.parametrize("compute", [None, "cap"])
@pytest.mark.parametrize("program", RIGHT)
def test_ends_no_program_that_is_right_without_it(programs, tenants, program, compute):
    tenant = tenants(1000, compute=compute, weight=50)
    assert run(programs, tenant.library("libcuda.so.1"), program) == RIGHT[program]


@pytest.mark.parametrize("program", RIGHT)
def test_is_tested_with_programs_that_are_right(programs, driver, program):
    assert run(programs, driver.library("libcuda.so.1"), program) == RIGHT[program]


@pytest.mark.parametrize("program", ["open capture", "lost capture"])
def test_measures_launches_beside_a_capture_that_never_ends(programs, tenants, program):
    tenant = tenants(1000, compute="cap", weight=50)
    assert run(programs, tenant.library("libcuda.so.1"), program) == "done"
    (used,) = struct.unpack_from("<Q", (tenant.share / tenant.root.name).read_bytes(), 40)
    assert used > 200 * 200_000  # half of 400 kernels of 0.2 ms


@pytest.mark.parametrize("compute", [None, "cap"])
def test_synchronizes_the_context_that_is_named(tenants, compute):
    """From CUDA 13 on the name stands for a function that takes a context."""
    script = """
from lab.driver_clients.sleeper import Sleeper
first, found, status = c.c_void_p(), c.c_void_p(), c.c_int()
cuda.call('cuCtxGetCurrent', c.byref(first))
cuda.call('cuGetProcAddress_v2', b'cuCtxSynchronize', c.byref(found), 13000, c.c_uint64(0),
          c.byref(status))
Sleeper(cuda).start(300_000_000)
cuda.context()
print(c.CFUNCTYPE(c.c_int, c.c_void_p)(found.value)(first))
cuda.call('cuCtxSetCurrent', first)
print(cuda.code('cuStreamQuery', None))
"""
    assert tenants(1000, compute=compute, weight=50).run(script).split() == ["0", "0"]


def test_charges_the_memory_of_graphs(programs, tenants):
    library = tenants(1000).library("libcuda.so.1")
    # What a graph has allocated, and what the driver keeps for graphs after it is freed.
    steps = ["0 600", "2 600", "600", "0 100", "1000"]
    assert run(programs, library, "graph memory").split("\n") == steps
