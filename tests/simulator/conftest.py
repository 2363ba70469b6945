"""Fixtures: the built driver, and driver roots with their daemons."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from divvy.lab.simulated_driver import build
from tests.simulator.driver_root import DriverRoot

Install = Callable[..., DriverRoot]


@pytest.fixture(scope="session")
def binaries() -> Path:
    chosen = os.environ.get("DIVVY_SIMULATOR_BUILD")  # the sanitized build of test_sanitized.py
    return Path(chosen) if chosen else build()


@pytest.fixture
def install(binaries: Path, tmp_path: Path) -> Iterator[Install]:
    """Return a function that installs a driver: `install("A100-SXM4-40GB", 2)`."""
    roots: list[DriverRoot] = []
    stopping = contextlib.ExitStack()

    def make(model: str = "A100-SXM4-40GB", count: int = 1, keep: bool = False) -> DriverRoot:
        persist = tmp_path / "kept/modes" if keep else None
        made = DriverRoot(tmp_path / f"root{len(roots)}", binaries, persist)
        roots.append(made)
        stopping.callback(made.stop)
        made.install(model, count)
        return made

    with stopping:
        yield make
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture
def administrator() -> None:
    """Skip what the driver allows to root alone."""
    status = Path("/proc/self/status").read_text()
    capabilities = int(status.split("CapEff:")[1].split()[0], 16)
    if os.geteuid() != 0 or not capabilities >> 21 & 1:
        pytest.skip("changes of MIG and settings need root with CAP_SYS_ADMIN")
