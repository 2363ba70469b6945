"""Fixtures of the checks of a bare host: the host, its programs, and an idle GPU."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from conformance.bare.findings import Findings
from conformance.bare.gpus import Gpu, idle_gpu, why_none_is_idle
from conformance.bare.host import HOST, BareHost, programs
from conformance.bare.interruption import INTERRUPTION, Interruption
from conformance.bare.kit import Kit
from conformance.bare.processes import kill_descendants
from conformance.bare.time_share import TimeShare
from conformance.evidence import Evidence
from conformance.skips import CheckSkipped, not_applicable, not_made
from divvy.agent.gpu.hardware import Snapshot
from divvy.agent.nvml.discovery import discover
from divvy.version_info import install_command

# A check says otherwise by @pytest.mark.limit(SECONDS).
_LIMIT_SECONDS = 60.0


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Begin no check of a run that is to stop."""
    if why := item.config.stash[INTERRUPTION].stopped:
        raise CheckSkipped(why)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """End a check that takes too long, and what it has left behind."""
    mark = item.get_closest_marker("limit")
    try:
        with item.config.stash[INTERRUPTION].limited(mark.args[0] if mark else _LIMIT_SECONDS):
            return (yield)
    finally:
        if item.config.stash[HOST].is_here and (left := kill_descendants()):
            raise AssertionError(f"processes {left} could not be ended")


@pytest.fixture(scope="session")
def host(pytestconfig: pytest.Config) -> BareHost:
    """Give the host under test."""
    host = pytestconfig.stash[HOST]
    if host.problem is not None:
        pytest.skip(host.problem)
    return host


def _require_here(host: BareHost) -> None:
    if not host.is_here:
        not_applicable("it is made on the host that it is about")


@pytest.fixture(scope="session")
def root(host: BareHost) -> Path:
    """Give the driver root of a host that is this one."""
    _require_here(host)
    if find_spec("pynvml") is None:
        not_made(f"NVIDIA's binding of NVML is not installed: {install_command('agent')}")
    return Path(host.root)


@pytest.fixture(scope="session")
def kit(host: BareHost, pytestconfig: pytest.Config) -> Kit:
    """Give the unpacked hardware kit; conftest skips checks that need it where it is not given."""
    _require_here(host)
    return Kit(Path(pytestconfig.getoption("--kit")))


@pytest.fixture(scope="session")
def workloads(host: BareHost, pytestconfig: pytest.Config) -> Iterator[str]:
    """Give the folder with the workloads."""
    folder, kit = (pytestconfig.getoption(name) for name in ("--workloads", "--kit"))
    if folder is None and kit is not None:
        folder = str(Kit(Path(kit)).workloads)
    with programs(host, folder) as there:
        yield there


@pytest.fixture
def idle(host: BareHost) -> Gpu:
    """Give an idle GPU."""
    _require_here(host)
    gpus = host.gpus
    gpu = idle_gpu(gpus)
    return not_made(why_none_is_idle(gpus)) if gpu is None else gpu


@pytest.fixture
def discovered(root: Path) -> Snapshot:
    """Give what the agent's discovery finds."""
    return asyncio.run(discover(root))


@pytest.fixture
def findings(host: BareHost, evidence: Evidence) -> Findings:
    """Give what takes several statements of one check."""
    return Findings(evidence, host.simulated)


@pytest.fixture
def interruption(pytestconfig: pytest.Config) -> Interruption:
    """Give what may end the check."""
    return pytestconfig.stash[INTERRUPTION]


@pytest.fixture
def time_share(host: BareHost) -> TimeShare:
    """Give what measures a GPU's time."""
    return TimeShare(host.simulated)


@pytest.fixture
def measured_for(host: BareHost) -> Callable[[float], float]:
    """Give how many seconds each figure is measured: simulated GPUs yield no figures."""
    return lambda seconds: min(seconds, 1.0) if host.simulated else seconds
