"""Processes that fork while their threads are anywhere in the limiter."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lab.target import RUN
from tests.limiter.programs import compiled

ROUNDS = 100


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("forks.c", tmp_path_factory.mktemp("forks"))


@pytest.mark.parametrize("compute", [None, "cap"])
def test_ends_every_child_of_a_program_with_threads(forks, tenants, compute):
    library = tenants(1000, compute=compute, weight=50).library("libcuda.so.1")
    done = subprocess.run(
        [*RUN, forks, library, str(ROUNDS)], capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout == f"0 of {ROUNDS}\n"


def test_answers_a_child_as_the_driver_does_and_leaves_the_page_alone(tenants):
    script = """
from lab.driver_clients.sleeper import Sleeper
sleeper, pointer, at = Sleeper(cuda), cuda.allocate(MIB), c.c_uint64()
sleeper.start(1000)
cuda.call('cuCtxSynchronize')
page = Path(sys.argv[2])
before = page.read_bytes()
if os.fork() == 0:
    print(cuda.code('cuMemFree_v2', c.c_uint64(pointer)), cuda.code('cuCtxSynchronize'),
          cuda.code('cuMemAlloc_v2', c.byref(at), c.c_size_t(8)), tried(lambda: sleeper.start(1)),
          cuda.code('cuMemAllocAsync', c.byref(at), c.c_size_t(8), None), flush=True)
    os._exit(0)
os.wait()
print(page.read_bytes() == before, cuda.memory()[0] // MIB)
"""
    tenant = tenants(1000, compute="cap", weight=50)
    out = tenant.run(script, str(tenant.share / tenant.root.name))
    assert out.splitlines() == ["3 3 3 3 3", "True 999"]
