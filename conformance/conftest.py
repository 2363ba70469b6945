"""The suite's options, the cluster it runs against, and the record of what it saw."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.catalogue import CATALOGUE, EVERY, Check
from conformance.evidence import Evidence
from conformance.fill import Filled, fill
from conformance.pods import Outcome, Workplace, workplace
from conformance.probes import LOOK, AtOnce, look_around
from conformance.progress import Progress
from conformance.promise import DevicePromise, NodePromise
from conformance.report import Record, Report
from conformance.site import Site, open_site

Bare = AtOnce[NodePromise, Outcome]
Probes = AtOnce[DevicePromise, Outcome]
Fills = AtOnce[DevicePromise, Filled]
_BURN = ("gpu-burn", "-m", "64", "-stts", "1", "3")
_MOST_PODS, _MOST_FILLS, _MOST_BURNS = 16, 4, 2

_SITE = pytest.StashKey[Site]()
_REPORT = pytest.StashKey[Report]()
_EVIDENCE = pytest.StashKey[Evidence]()
_PROGRESS = pytest.StashKey[Progress]()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    group = parser.getgroup("divvy")
    group.addoption("--divvy-stack", default="lab", help="The stack whose plan is proven.")
    group.addoption("--divvy-file", default=None, help="A stack file instead of a stack's name.")
    group.addoption("--divvy-pool", default=None, help="Only this pool.")
    group.addoption(
        "--divvy-select", default=None, help="Only checks whose id begins so; several with commas."
    )
    group.addoption("--workload-image", default=None, help="Image with the workloads, by digest.")
    group.addoption("--exclusive", action="store_true", help="Fill nodes, burn, ask for too much.")
    group.addoption("--disruptive", action="store_true", help="Restart agents.")
    group.addoption("--no-exec", action="store_true", help="Do not enter the agent's pods.")
    group.addoption("--divvy-progress", action="store_true", help="One line per check.")
    group.addoption("--divvy-report", default=None, help="Folder for the reports.")


def pytest_configure(config: pytest.Config) -> None:
    """Connect to the cluster before anything is collected."""
    config.addinivalue_line("markers", "check(check): the entry of the catalogue that it proves")
    config.addinivalue_line("markers", "exclusive: needs the node for itself")
    config.addinivalue_line("markers", "disruptive: restarts something")
    config.addinivalue_line("markers", "enters: enters the agent's pod")
    site = open_site(config)
    config.stash[_SITE] = site
    if config.getoption("--divvy-progress"):
        config.stash[_PROGRESS] = Progress()
        config.pluginmanager.register(config.stash[_PROGRESS])
    config.stash[_REPORT] = Report(site.describe())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run node checks over the nodes of the pools, device checks over what they should offer."""
    site = metafunc.config.stash[_SITE]
    if "promise" in metafunc.fixturenames:
        marks = [mark.args[0] for mark in metafunc.definition.iter_markers("check")]
        modes = marks[0].modes if marks else EVERY
        cases = [found for found in site.devices if found.mode in modes]
        metafunc.parametrize("promise", cases, ids=str)
    elif "node" in metafunc.fixturenames:
        metafunc.parametrize("node", site.nodes, ids=str)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip by name what was not allowed, and what only hardware can show."""
    site = config.stash[_SITE]
    prefix = config.getoption("--divvy-select")
    if prefix:
        wanted = tuple(part.strip().upper() for part in prefix.split(","))
        items[:] = [item for item in items if _identity(item).startswith(wanted)]
    # A check that applies to nothing here is neither passed nor skipped.
    items[:] = [item for item in items if not _is_empty(item)]
    order = list(CATALOGUE)
    items.sort(key=lambda item: order.index(_identity(item)))
    for item in items:
        for option in ("exclusive", "disruptive"):
            if item.get_closest_marker(option) and not config.getoption(f"--{option}"):
                item.add_marker(pytest.mark.skip(reason=f"needs --{option}"))
        if item.get_closest_marker("enters") and config.getoption("--no-exec"):
            item.add_marker(pytest.mark.skip(reason="--no-exec was given"))
        found = _check(item)
        if found is not None and found.needs_hardware and site.simulated:
            item.add_marker(pytest.mark.skip(reason="needs hardware: the GPUs are simulated"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
    """Record the outcome of every check."""
    outcome = yield
    found = _check(item)
    relevant = outcome.when == "call" or (outcome.when == "setup" and not outcome.passed)
    if found is None or not relevant:
        return outcome
    evidence = item.stash.get(_EVIDENCE, Evidence())
    case = item.callspec.id if hasattr(item, "callspec") else "cluster"
    reason = ""
    if outcome.skipped:
        reason = str(outcome.longrepr[2]).removeprefix("Skipped: ")
    elif outcome.failed:
        reason = str(call.excinfo.value).split("\nassert ")[0] if call.excinfo else ""
    status = "skipped" if outcome.skipped else "passed" if outcome.passed else "failed"
    record = Record(found, case, status, reason, evidence, outcome.duration)
    item.config.stash[_REPORT].records.append(record)
    if _PROGRESS in item.config.stash:
        item.config.stash[_PROGRESS].done(found, status)
    return outcome


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Write the reports."""
    report = session.config.stash[_REPORT]
    report.ended = time.time()
    if _PROGRESS in session.config.stash:
        session.config.stash[_PROGRESS].end()
    folder = session.config.getoption("--divvy-report")
    if folder:
        report.write(Path(folder))


def _check(item: pytest.Item) -> Check | None:
    mark = item.get_closest_marker("check")
    return None if mark is None else mark.args[0]


def _is_empty(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.id == "NOTSET"


def _identity(item: pytest.Item) -> str:
    found = _check(item)
    assert found is not None, f"{item.nodeid} proves no check of the catalogue"
    return found.id


@pytest.fixture(scope="session")
def site(pytestconfig: pytest.Config) -> Site:
    """Give the cluster under test."""
    return pytestconfig.stash[_SITE]


@pytest.fixture(scope="session")
def pods(site: Site) -> Iterator[Workplace]:
    """Give a namespace for pods."""
    if site.image is None:
        pytest.skip("no workload image: give --workload-image, or plugin.image.registry")
    with workplace(site.client, site.image) as place:
        yield place


@pytest.fixture
def evidence(request: pytest.FixtureRequest) -> Evidence:
    """Give the place for what a check sees."""
    found = Evidence()
    request.node.stash[_EVIDENCE] = found
    return found


@dataclass(frozen=True)
class Burns:
    """A short burn on one device of each resource."""

    command: tuple[str, ...]
    outcomes: AtOnce[DevicePromise, Outcome]


@pytest.fixture(scope="session")
def bare(site: Site, pods: Workplace) -> Bare:
    """Look around in a pod without a request on every node."""
    command = ["/bin/sh", "-c", LOOK]
    return AtOnce(site.nodes, lambda node: pods.run(node.name, command), _MOST_PODS)


@pytest.fixture(scope="session")
def probes(site: Site, pods: Workplace) -> Probes:
    """Look at one device of each resource on every node."""
    return AtOnce(site.devices, lambda promise: look_around(pods, promise), _MOST_PODS)


@pytest.fixture(scope="session")
def fills(site: Site, pods: Workplace) -> Fills:
    """Fill every resource on every node."""
    return AtOnce(site.devices, lambda promise: fill(pods, promise), _MOST_FILLS)


@pytest.fixture(scope="session")
def burns(site: Site, pods: Workplace) -> Burns:
    """Burn one device of each resource on every node."""
    return Burns(
        _BURN,
        AtOnce(
            site.devices,
            lambda promise: pods.run(promise.node.name, _BURN, promise.resource, 120),
            _MOST_BURNS,
        ),
    )
