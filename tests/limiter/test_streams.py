"""Programs whose streams wait for the host or for each other, or capture."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from divvy.agent.decide.share import Compute, DeviceShare
from tests.limiter.programs import compiled
from tests.limiter.tenant import Tenant

UUID = "GPU-11111111-1111-1111-1111-111111111111"  # of stream_driver.c


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled("stream_programs.c", tmp_path_factory.mktemp("streams"))


@pytest.fixture(scope="session")
def stream_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("streams")
    return compiled("stream_driver.c", folder, "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1")


Share = Callable[[Compute], Tenant]


@pytest.fixture
def share(driver, stream_driver, limiter, tmp_path) -> Share:
    def make(compute: Compute) -> Tenant:
        made = Tenant(driver, tmp_path / "share", limiter)
        page = "-" if compute is Compute.FREE else "share"
        made.install([DeviceShare(UUID, 1000, compute, 50, page)])
        shutil.copy(stream_driver, made.root / "usr/lib/divvy/driver/libcuda-driver.so.1")
        return made

    return make


def run(programs: Path, library: Path, program: str) -> str:
    done = subprocess.run(
        [programs, library, program], capture_output=True, text=True, check=False, timeout=30
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


RIGHT = {
    "host function": "done",
    "wait value": "done",
    "capture": "0 failed",
    "capture to graph": "0 failed",
    "capture beside launches": "0 failed",
}


@pytest.mark.parametrize("compute", [Compute.FREE, Compute.CAP])
@pytest.mark.parametrize("program", RIGHT)
def test_ends_no_program_that_is_right_without_it(programs, share, program, compute):
    assert run(programs, share(compute).library("libcuda.so.1"), program) == RIGHT[program]


@pytest.mark.parametrize("program", RIGHT)
def test_is_tested_with_programs_that_are_right(programs, stream_driver, program):
    assert run(programs, stream_driver, program) == RIGHT[program]


@pytest.mark.parametrize("program", ["open capture", "lost capture"])
def test_measures_launches_beside_a_capture_that_never_ends(programs, share, program):
    tenant = share(Compute.CAP)
    assert run(programs, tenant.library("libcuda.so.1"), program) == "done"
    (used,) = struct.unpack_from("<Q", (tenant.share / "share").read_bytes(), 40)
    assert used > 60 * 200_000  # 70 kernels of 0.2 ms, the last batch of which is still open


def test_charges_the_memory_of_graphs(programs, share):
    library = share(Compute.FREE).library("libcuda.so.1")
    # What a graph has allocated, and what the driver keeps for graphs after it is freed.
    steps = ["0 600", "2 600", "600", "0 100", "1000"]
    assert run(programs, library, "graph memory").split("\n") == steps
