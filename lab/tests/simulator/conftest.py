"""Fixtures: the built driver, driver roots with their daemons, GPUs ready for work."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from lab.cluster.simulated_driver import build
from lab.driver_clients.cuda import Cuda
from lab.driver_clients.driver_root import VERSION, DriverRoot

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

    def make(
        model: str = "A100-SXM4-40GB", count: int = 1, keep: bool = False, version: str = VERSION
    ) -> DriverRoot:
        persist = tmp_path / "kept/modes" if keep else None
        root = DriverRoot(tmp_path / f"root{len(roots)}", binaries, persist)
        roots.append(root)
        stopping.callback(root.stop)
        root.install(model, count, version)
        return root

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


@pytest.fixture
def gpu(install: Install) -> Cuda:
    """Give a GPU of the test's own, with a current context."""
    cuda = install().cuda().init()
    cuda.context()
    return cuda


@pytest.fixture(scope="module")
def kept_cuda(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cuda]:
    """Give libcuda with one GPU, the same for all tests of a module."""
    driver = DriverRoot(tmp_path_factory.mktemp("kept") / "root", binaries)
    driver.install("A100-SXM4-40GB", 1)
    yield driver.cuda().init()
    driver.stop()


@pytest.fixture
def kept_gpu(kept_cuda: Cuda) -> Iterator[Cuda]:
    """Give the module's GPU, with a context of the test's own: enough where kernels alone count."""
    context = kept_cuda.context()
    yield kept_cuda
    kept_cuda.call("cuCtxDestroy_v2", context)
