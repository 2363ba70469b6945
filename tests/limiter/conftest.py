"""Fixtures: the built limiter, and tenants on a simulated driver of the test's own."""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from divvy.model.sharing import Compute, DeviceShare, Sharing
from lab.cluster.simulated_driver import build
from lab.driver_clients.driver_root import DriverRoot
from tests.limiter.tenant import Tenant, build_limiter

Tenants = Callable[..., Tenant]


@pytest.fixture(scope="session")
def limiter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    chosen = os.environ.get("DIVVY_LIMITER_BUILD")  # that of test_sanitized.py or test_arm64.py
    return Path(chosen) if chosen else build_limiter(tmp_path_factory.mktemp("limiter"))


@pytest.fixture(scope="session")
def binaries() -> Path:
    chosen = os.environ.get("DIVVY_SIMULATOR_BUILD")  # that of test_arm64.py
    return Path(chosen) if chosen else build()


@pytest.fixture
def driver(tmp_path: Path, binaries: Path) -> Iterator[DriverRoot]:
    """Give a node with two T4."""
    root = DriverRoot(tmp_path / "driver", binaries)
    root.install("T4", 2)
    yield root
    root.stop()


@pytest.fixture
def tenants(driver: DriverRoot, limiter: Path, tmp_path: Path) -> Iterator[Tenants]:
    """Return a function that makes a tenant: `tenants(1024)` has that many MiB of the first GPU."""
    names = iter(range(100))

    def make(
        *mib: int,
        compute: Compute | None = None,
        weight: int = 100,
        oversubscribed: bool = False,
    ) -> Tenant:
        uuids = driver.smi("--query-gpu=uuid", "--format=csv,noheader").split()
        tenant = Tenant(driver, tmp_path / f"tenant{next(names)}", limiter)
        stopping.callback(tenant.stop)
        page = "-" if compute is None else tenant.root.name
        sharing = Sharing(
            action="prevent", compute=compute, weight=weight, oversubscribed=oversubscribed
        )
        tenant.install(
            [
                DeviceShare(uuid, replace(sharing, memory_mib=size), page)
                for uuid, size in zip(uuids, mib, strict=False)
            ]
        )
        return tenant

    with contextlib.ExitStack() as stopping:
        yield make


@pytest.fixture
def administrator() -> None:
    """Skip what the driver allows to root alone."""
    if os.geteuid() != 0:
        pytest.skip("the simulated driver takes such orders from root alone")
