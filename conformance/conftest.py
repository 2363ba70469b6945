"""Chooses the checks and the cases they run over, and records what they saw."""

from __future__ import annotations

import math
import signal
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from conformance import fixtures
from conformance.bare.host import HOST
from conformance.bare.session import begin, describe
from conformance.catalogue import CATALOGUE
from conformance.check import EVERY, MARKS, Check
from conformance.cluster.api import is_momentary
from conformance.cluster.cluster_under_test import CLUSTER, CommandFailed
from conformance.cluster.node_life import NodeLife
from conformance.cluster.node_success import note_success
from conformance.cluster.open_cluster import open_cluster
from conformance.evidence import Evidence, sentence
from conformance.options import add_options, narrowing, options_of
from conformance.promise import NO_POOL, NodePromise
from conformance.report.identities import without_identities
from conformance.report.progress import Progress
from conformance.report.report import Record, Report
from conformance.skips import CheckSkipped, Missed, NotApplicable
from divvy.kube.errors import ApiError, KubeError
from divvy.model.api_names import Mode

_REPORT = pytest.StashKey[Report]()
_PROGRESS = pytest.StashKey[Progress]()
_SIMULATED = pytest.StashKey[bool]()
_BARE = Path(__file__).parent / "bare"
_IMAGES = {"WORK-04": "--vector-add-image", "WORK-05": "--gpu-burn-image"}
_MISSED = pytest.StashKey[Missed]()
_DEADLINE = pytest.StashKey[float]()
_LIFE = pytest.StashKey[NodeLife]()
_COMPLETE = (
    pytest.ExitCode.OK,
    pytest.ExitCode.TESTS_FAILED,
    pytest.ExitCode.NO_TESTS_COLLECTED,
)
_UNAUTHORIZED = 401
_NEEDS_HARDWARE = "needs hardware: the GPUs are simulated"
_SHOWS_NOTHING = "was exercised on simulated GPUs, which shows nothing"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the suite's options."""
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Connect to the cluster or host before anything is collected."""
    for line in MARKS:
        config.addinivalue_line("markers", line)
    config.pluginmanager.register(fixtures)
    # What asks the suite to end gets its pods and labels removed first, as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _require_known(config.getoption("--divvy-select"))
    if limit := config.getoption("--divvy-time-limit"):
        config.stash[_DEADLINE] = time.monotonic() + limit * 60
    report_options: dict[str, Any] = {
        "only": narrowing(config),
        "options": options_of(config),
        "strict": config.getoption("--divvy-strict"),
        "require": config.getoption("--divvy-require"),
    }
    if config.getoption("--bare"):
        host = begin(config, config.stash.get(_DEADLINE, math.inf))
        config.stash[HOST] = host
        config.stash[_SIMULATED] = host.simulated
        config.stash[_REPORT] = Report(describe(config, host), **report_options)
    else:
        under_test = open_cluster(config)
        config.stash[CLUSTER] = under_test
        config.stash[_LIFE] = NodeLife(under_test.api)
        config.stash[_SIMULATED] = under_test.simulated
        config.stash[_REPORT] = Report(under_test.describe(), **report_options)
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
    """Run node checks over the pools' nodes, device checks over what they should advertise."""
    config, names = metafunc.config, metafunc.fixturenames
    if "device" in names:
        metafunc.parametrize("device", config.stash[HOST].devices, ids=str)
    elif "mig_device" in names:
        parts = [device for device in config.stash[HOST].devices if device.is_mig]
        metafunc.parametrize("mig_device", parts, ids=str)
    elif "pool" in names:
        under_test = config.stash[CLUSTER]
        pools = (
            [*under_test.cluster.pools, NO_POOL] if under_test.pool is None else [under_test.pool]
        )
        metafunc.parametrize("pool", pools, ids=str)
    elif "promise" in names:
        modes = _modes(metafunc)
        cases = [device for device in config.stash[CLUSTER].devices if device.mode in modes]
        metafunc.parametrize("promise", cases, ids=str)
    elif "claimed_gpu" in names:
        metafunc.parametrize("claimed_gpu", config.stash[CLUSTER].claims, ids=str)
    elif "node" in names:
        under_test = config.stash[CLUSTER]
        modes = _modes(metafunc)
        fitting = {device.node.name for device in under_test.devices if device.mode in modes}
        if Mode.CLAIMS in modes:
            fitting |= {promise.node.name for promise in under_test.claims}
        nodes = [node for node in under_test.nodes if modes == EVERY or node.name in fitting]
        metafunc.parametrize("node", nodes, ids=str)


def _modes(metafunc: pytest.Metafunc) -> tuple[str, ...]:
    marks = [mark.args[0] for mark in metafunc.definition.iter_markers("check")]
    return tuple(marks[0].modes) if marks else EVERY


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip by name what was not allowed, and what only hardware can show."""
    selected = config.getoption("--divvy-select")
    if selected is not None:
        wanted = _prefixes(selected)
        items[:] = [item for item in items if _identity(item).startswith(wanted)]
    # A check that applies to nothing here, or was not asked for, is neither passed nor skipped.
    items[:] = [item for item in items if not _is_empty(item) and _is_requested(item)]
    order = list(CATALOGUE)
    items.sort(key=lambda item: order.index(_identity(item)))
    for item in items:
        why = _why_not(item)
        if why is not None:
            missed, reason = why
            item.stash[_MISSED] = missed
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_not(item: pytest.Item) -> tuple[Missed, str] | None:
    """Return why a check is not made, and how much it is missed; None if it is made."""
    config = item.config
    check = _check(item)
    if CLUSTER in config.stash and check is not None:
        why = config.stash[CLUSTER].implementation.why_not(check.id)
        if why is not None:
            return "not applicable", why
    if check is not None and check.needs_hardware and _only_simulated(config):
        return "not applicable", _NEEDS_HARDWARE
    for option in ("exclusive", "disruptive", "mig"):
        if item.get_closest_marker(option) and not config.getoption(f"--{option}"):
            return "option", f"needs --{option}"
    if item.get_closest_marker("kit") and not config.getoption("--kit"):
        return "option", "needs the hardware kit: make hardware-kit"
    if item.get_closest_marker("enters") and config.getoption("--no-exec"):
        return "option", "--no-exec was given"
    node = _node_of(item)
    return None if node is None or not node.unready else ("not made", node.unready)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip at once what is late, or about a node that has died: its pods would be waited for."""
    if time.monotonic() > item.config.stash.get(_DEADLINE, math.inf):
        raise CheckSkipped("the time limit of the run was over")
    node = _node_of(item)
    if node is None:
        return
    check = _check(item)
    if check is not None and check.needs_hardware and _only_simulated(item.config):
        # Without an agent it is a pod that has found the simulated driver, meanwhile.
        raise NotApplicable(_NEEDS_HARDWARE)
    gone = item.config.stash[CLUSTER].gone
    if node.name in gone and (why := _gone(item, wait=False)):
        raise CheckSkipped(why)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, Any, Any]:
    """Record the outcome of every check."""
    outcome = yield
    check = _check(item)
    if check is not None and outcome.when == "teardown" and outcome.failed and call.excinfo:
        with suppress(OSError):
            left = f"what {check.id} needed could not be removed: {sentence(call.excinfo.value)}"
            print(f"  {left}; the next run removes it", file=sys.stderr)
    relevant = outcome.when == "call" or (outcome.when == "setup" and not outcome.passed)
    if check is None or not relevant:
        return outcome
    seen = item.stash.get(fixtures.EVIDENCE, Evidence())
    host = item.config.stash.get(HOST, None)
    only = "cluster" if host is None else host.name
    case = item.callspec.id if hasattr(item, "callspec") else only
    status, reason, missed = _what_came(item, check, outcome, call)
    record = Record(check, case, status, reason, seen, outcome.duration, missed)
    if item.config.getoption("--no-identities"):
        record = without_identities(record)
    item.config.stash[_REPORT].records.append(record)
    if _PROGRESS in item.config.stash:
        item.config.stash[_PROGRESS].done(check, status)
    return outcome


def _what_came(
    item: pytest.Item, check: Check, outcome: Any, call: pytest.CallInfo[None]
) -> tuple[str, str, Missed | None]:
    """Return a check's status, the reason, and why it was not made where it was not."""
    problem = None if call.excinfo is None else call.excinfo.value
    if isinstance(problem, CheckSkipped | NotApplicable):
        own: Missed = "not made" if isinstance(problem, CheckSkipped) else "not applicable"
        return "skipped", str(problem), item.stash.get(_MISSED, None) or own
    text = "" if problem is None else sentence(problem)
    if outcome.passed:
        if check.needs_hardware and _now_simulated(item.config):
            return "skipped", _SHOWS_NOTHING, "not applicable"
        return "passed", "", None
    if outcome.failed and _is_unanswered(problem):
        return "skipped", f"the API server could not be asked: {text}", "not made"
    if outcome.failed:
        gone = _gone(item, wait=isinstance(problem, CommandFailed))
        return ("skipped", gone, "not made") if gone else ("failed", text, None)
    return "skipped", str(getattr(problem, "msg", "")), item.stash.get(_MISSED, None) or "not made"


def _is_unanswered(problem: BaseException | None) -> bool:
    """Return whether the API server did not answer, or no longer knows who asks."""
    if isinstance(problem, ApiError):
        return is_momentary(problem) or problem.code == _UNAUTHORIZED
    return isinstance(problem, KubeError)


def _node_of(item: pytest.Item) -> NodePromise | None:
    params = item.callspec.params if hasattr(item, "callspec") else {}
    parameter = params.get("promise") or params.get("claimed_gpu")
    node = params.get("node") or getattr(parameter, "node", None)
    return node if isinstance(node, NodePromise) else None


def _gone(item: pytest.Item, *, wait: bool) -> str:
    """Return a message if a node has left or died since the run began, else "".

    Whatever failed there since shows nothing.
    """
    node = _node_of(item)
    if node is None:
        return ""
    why = item.config.stash[_LIFE].ended(node.name, wait=wait)
    known = item.config.stash[CLUSTER].gone
    if why:
        known[node.name] = why
    else:
        known.pop(node.name, None)
    return why


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the reports, unless the run ended before it was complete: it would say too little."""
    report = session.config.stash[_REPORT]
    report.ended = time.time()
    if CLUSTER in session.config.stash:
        under_test = session.config.stash[CLUSTER]
        # What pods saw of the drivers is known now.
        selected = session.config.getoption("--divvy-select")
        # What other programs do says nothing of an agent that serves it.
        if exitstatus in _COMPLETE and not selected and under_test.implementation.is_divvy:
            note_success(under_test.api, report.sound_nodes, report.ended)
        report.target = {**under_test.describe(), "requests": dict(under_test.api.requests)}
    if _PROGRESS in session.config.stash:
        session.config.stash[_PROGRESS].end()
    folder = session.config.getoption("--divvy-report")
    if folder and exitstatus in _COMPLETE:
        try:
            report.write(Path(folder))
        except OSError as problem:
            # Its checks may have taken long, and may not be made again soon.
            print(report.text())
            print(f"the report cannot be written: {problem}", file=sys.stderr)


def _prefixes(selected: str) -> tuple[str, ...]:
    return tuple(part.strip().upper() for part in selected.split(","))


def _require_known(selected: str | None) -> None:
    """Refuse a selection of which a part names no check: what it meant would not be checked."""
    for prefix in _prefixes(selected) if selected is not None else ():
        if not prefix or not any(identity.startswith(prefix) for identity in CATALOGUE):
            groups = dict.fromkeys(identity.partition("-")[0] for identity in CATALOGUE)
            raise pytest.UsageError(
                f"--select has {prefix or 'nothing'} where ids of checks are expected, such as "
                f"PLUG-02, or their beginnings: {', '.join(groups)}"
            )


def _only_simulated(config: pytest.Config) -> bool:
    """Return whether the GPUs are known to be simulated, and that keeps a check from being made."""
    return _now_simulated(config) and not config.getoption("--hardware-checks-anyway")


def _now_simulated(config: pytest.Config) -> bool:
    under_test = config.stash.get(CLUSTER, None)
    return config.stash[_SIMULATED] or (under_test is not None and under_test.simulated)


def _check(item: pytest.Item) -> Check | None:
    mark = item.get_closest_marker("check")
    return None if mark is None else mark.args[0]


def _is_empty(item: pytest.Item) -> bool:
    callspec = getattr(item, "callspec", None)
    return callspec is not None and callspec.id == "NOTSET"


def _is_requested(item: pytest.Item) -> bool:
    option = _IMAGES.get(_identity(item))
    return option is None or item.config.getoption(option) is not None


def _identity(item: pytest.Item) -> str:
    check = _check(item)
    assert check is not None, f"{item.nodeid} proves no check of the catalogue"
    return check.id
