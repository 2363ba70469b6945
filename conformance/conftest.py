"""Which checks run over which cases, and the record of what they saw."""

from __future__ import annotations

import signal
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from conformance.bare.host import HOST, open_host
from conformance.catalogue import CATALOGUE, EVERY, Check
from conformance.evidence import Evidence
from conformance.fixtures import (  # noqa: F401 (pytest finds fixtures here)
    EVIDENCE,
    bare,
    burns,
    crowds,
    evidence,
    fills,
    known_images,
    openings,
    overdraws,
    past_scheduler,
    places,
    pods,
    probes,
    site,
    tellings,
)
from conformance.options import add_options
from conformance.progress import Progress
from conformance.report import Record, Report
from conformance.site import SITE, open_site

_REPORT = pytest.StashKey[Report]()
_PROGRESS = pytest.StashKey[Progress]()
_SIMULATED = pytest.StashKey[bool]()
_BARE = Path(__file__).parent / "bare"
_IMAGES = {"WORK-04": "--vector-add-image", "WORK-05": "--gpu-burn-image"}
_SHOWS_NOTHING = "was exercised on simulated GPUs, which shows nothing"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Connect to the cluster or host before anything is collected."""
    for line in (
        "check(check): the entry of the catalogue that it proves",
        "exclusive: needs the node for itself",
        "disruptive: restarts, changes or breaks something",
        "enters: enters the agent's pod",
    ):
        config.addinivalue_line("markers", line)
    # What asks the suite to end gets its pods and labels removed first, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if config.getoption("--bare"):
        host = open_host(config)
        config.stash[HOST] = host
        config.stash[_SIMULATED] = host.simulated
        config.stash[_REPORT] = Report(host.describe())
    else:
        found = open_site(config)
        config.stash[SITE] = found
        config.stash[_SIMULATED] = found.simulated
        config.stash[_REPORT] = Report(found.describe())
    if config.getoption("--divvy-progress"):
        config.stash[_PROGRESS] = Progress()
        config.pluginmanager.register(config.stash[_PROGRESS])


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Collect the checks of a bare host with --bare alone, and no others."""
    if collection_path.suffix != ".py":
        return None
    is_bare = _BARE in collection_path.parents
    return None if is_bare == config.getoption("--bare") else True


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run node checks over the nodes of the pools, device checks over what they should offer."""
    config, names = metafunc.config, metafunc.fixturenames
    if "device" in names:
        metafunc.parametrize("device", config.stash[HOST].devices, ids=str)
    elif "mig_device" in names:
        parts = [one for one in config.stash[HOST].devices if one.is_mig]
        metafunc.parametrize("mig_device", parts, ids=str)
    elif "promise" in names:
        marks = [mark.args[0] for mark in metafunc.definition.iter_markers("check")]
        modes = marks[0].modes if marks else EVERY
        cases = [found for found in config.stash[SITE].devices if found.mode in modes]
        metafunc.parametrize("promise", cases, ids=str)
    elif "node" in names:
        metafunc.parametrize("node", config.stash[SITE].nodes, ids=str)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip by name what was not allowed, and what only hardware can show."""
    prefix = config.getoption("--divvy-select")
    if prefix:
        wanted = tuple(part.strip().upper() for part in prefix.split(","))
        items[:] = [item for item in items if _identity(item).startswith(wanted)]
    # A check that applies to nothing here, or that nobody asked for, is neither passed nor skipped.
    items[:] = [item for item in items if not _is_empty(item) and _is_asked_for(item)]
    order = list(CATALOGUE)
    items.sort(key=lambda item: order.index(_identity(item)))
    for item in items:
        reason = _why_not(item)
        if reason is not None:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_not(item: pytest.Item) -> str | None:
    config = item.config
    found = _check(item)
    gated = not config.getoption("--hardware-checks-anyway")
    if found is not None and found.needs_hardware and gated and config.stash[_SIMULATED]:
        return "needs hardware: the GPUs are simulated"
    for option in ("exclusive", "disruptive"):
        if item.get_closest_marker(option) and not config.getoption(f"--{option}"):
            return f"needs --{option}"
    if item.get_closest_marker("enters") and config.getoption("--no-exec"):
        return "--no-exec was given"
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    """Record the outcome of every check."""
    outcome = yield
    found = _check(item)
    relevant = outcome.when == "call" or (outcome.when == "setup" and not outcome.passed)
    if found is None or not relevant:
        return outcome
    seen = item.stash.get(EVIDENCE, Evidence())
    host = item.config.stash.get(HOST, None)
    only = "cluster" if host is None else host.name
    case = item.callspec.id if hasattr(item, "callspec") else only
    reason = ""
    if outcome.skipped:
        reason = str(outcome.longrepr[2]).removeprefix("Skipped: ")
    elif outcome.failed:
        reason = str(call.excinfo.value).split("\nassert ")[0] if call.excinfo else ""
    status = "skipped" if outcome.skipped else "passed" if outcome.passed else "failed"
    if status == "passed" and found.needs_hardware and item.config.stash[_SIMULATED]:
        status, reason = "skipped", _SHOWS_NOTHING
    record = Record(found, case, status, reason, seen, outcome.duration)
    item.config.stash[_REPORT].records.append(record)
    if _PROGRESS in item.config.stash:
        item.config.stash[_PROGRESS].done(found, status)
    return outcome


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the reports, unless somebody ended the run before it was complete."""
    report = session.config.stash[_REPORT]
    report.ended = time.time()
    if _PROGRESS in session.config.stash:
        session.config.stash[_PROGRESS].end()
    folder = session.config.getoption("--divvy-report")
    if folder and exitstatus != pytest.ExitCode.INTERRUPTED:
        report.write(Path(folder))


def _check(item: pytest.Item) -> Check | None:
    mark = item.get_closest_marker("check")
    return None if mark is None else mark.args[0]


def _is_empty(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.id == "NOTSET"


def _is_asked_for(item: pytest.Item) -> bool:
    option = _IMAGES.get(_identity(item))
    return option is None or item.config.getoption(option) is not None


def _identity(item: pytest.Item) -> str:
    found = _check(item)
    assert found is not None, f"{item.nodeid} proves no check of the catalogue"
    return found.id
