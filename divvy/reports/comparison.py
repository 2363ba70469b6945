"""Compares two conformance reports: outcomes, versions, nodes, speed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from divvy.reports.result import result, statistics

# Checks differ by seconds from run to run; a figure of hardware by some percent.
_SLOWER, _LEAST_SECONDS = 1.5, 10.0
_FIGURE_DEVIATION = 0.1
_NO_VERSIONS = ("name", "simulated")
# Options by which a run leaves out checks, or nodes that no other run of them continues.
_PARTS = ("--select=", "--pool=")
_Report = Mapping[str, Any]


@dataclass(frozen=True)
class CaseChange:
    """One check in one case whose outcome is another; ``reason`` is of the newer report.

    ``missed`` says why it was not checked, "" if the newer report does not have the case.
    """

    check: str
    title: str
    level: str
    case: str
    before: str
    reason: str
    missed: str


@dataclass(frozen=True)
class VersionChange:
    """One version that is another, on these nodes: none for what the cluster has once."""

    name: str
    before: str
    after: str
    nodes: tuple[str, ...]


@dataclass(frozen=True)
class SpeedChange:
    """A figure that a check measured, or the seconds that it took in all of its cases."""

    subject: str
    unit: str
    before: float
    after: float

    @property
    def part(self) -> float:
        """Return the change as a part of what it was."""
        return self.after / self.before - 1


@dataclass(frozen=True)
class Comparison:
    """What changed since an earlier report.

    ``lost`` are MUST checks that something prevented; ``left_out`` counts cases that a run with
    other options does not have.
    """

    before: str
    options: tuple[str, str]
    newly_failing: tuple[CaseChange, ...]
    newly_passing: tuple[CaseChange, ...]
    newly_not_checked: tuple[CaseChange, ...]
    left_out: int
    lost: tuple[CaseChange, ...]
    versions: tuple[VersionChange, ...]
    speeds: tuple[SpeedChange, ...]
    nodes_added: tuple[str, ...]
    nodes_removed: tuple[str, ...]

    @property
    def outcomes_are_the_same(self) -> bool:
        """Return whether every check came out as before."""
        return not (self.newly_failing or self.newly_passing or self.newly_not_checked)


def compare_reports(old: _Report, new: _Report) -> Comparison:
    """Return what changed since ``old``.

    Raises ValueError for a simulated beside a hardware report, and for reports of two stacks.
    """
    if old["mode"] != new["mode"]:
        raise ValueError(f"a {old['mode']} report cannot be compared with a {new['mode']} one")
    require_stack(old, str(new["environment"]["stack"]))
    checks, earlier = _by_case(new), _by_case(old)
    nodes, former_nodes = _nodes(new), _nodes(old)
    options = (_options(old, new), _options(new, old))
    # A run with other options has other cases and nodes: which ones says nothing of the cluster.
    same_options = options[0] == options[1]
    removed = tuple(name for name in former_nodes if name not in nodes and same_options)
    unchecked = {
        key: check
        for key, check in earlier.items()
        if check["status"] != "skipped"
        and checks.get(key, {}).get("status", "skipped") == "skipped"
        and _node_of(key[1]) not in removed
    }
    not_checked = tuple(
        _changed(check, checks.get(key, {"reason": "the report does not have it"}))
        for key, check in unchecked.items()
        if key in checks or same_options
    )
    same_plan = same_options and _generation(old) == _generation(new)
    return Comparison(
        before=str(old["began"]),
        options=options,
        newly_failing=_newly("failed", earlier, checks),
        newly_passing=_newly("passed", earlier, checks),
        newly_not_checked=not_checked,
        left_out=len(unchecked) - len(not_checked),
        lost=tuple(
            check
            for check in not_checked
            if check.level == "MUST"
            and (check.missed == "not made" or (not check.missed and same_plan))
        ),
        versions=(*_cluster_versions(old, new), *_node_versions(former_nodes, nodes)),
        speeds=(*_figures(earlier, checks), *_durations(earlier, checks)),
        nodes_added=tuple(name for name in nodes if name not in former_nodes and same_options),
        nodes_removed=removed,
    )


def require_stack(old: _Report, name: str) -> None:
    """Raise ValueError for an earlier report of another stack than this."""
    stack = str(old["environment"]["stack"])
    if stack != name:
        raise ValueError(f"a report of {stack} cannot be compared with one of {name}")


def continued(old: _Report, new: _Report) -> dict[str, Any]:
    """Return a report of changed nodes as one of all nodes: the others are as they were.

    What is about no node, or about a node that both have, is of the newer one, which names the
    others that are still there. Under another stack file none of them is known.
    """
    nodes = _nodes(new)
    environment = dict(new["environment"])
    others = environment.pop("otherNodes", ())
    there = others if _generation(old) == _generation(new) else ()
    former = {name: node for name, node in _nodes(old).items() if name in there}
    former_checks = [check for check in old["checks"] if _node_of(check["case"]) in former]
    environment["nodes"] = [*former.values(), *nodes.values()]
    report = {**new, "environment": environment, "checks": [*former_checks, *new["checks"]]}
    report["only"] = [part for part in new.get("only") or () if part.startswith(_PARTS)]
    if not nodes:
        report["mode"] = old["mode"]
    report["statistics"] = statistics(report["checks"])
    report["result"] = result(
        report["checks"],
        strict="--strict" in report["options"],
        only=report["only"],
        mode=report["mode"],
    )
    return {key: value for key, value in report.items() if value or key != "only"}


def _by_case(report: _Report) -> dict[tuple[str, str], _Report]:
    return {(check["id"], check["case"]): check for check in report["checks"]}


def _node_of(case: str) -> str:
    return case.partition(":")[0]


def _nodes(report: _Report) -> dict[str, _Report]:
    return {node["name"]: node for node in report["environment"]["nodes"]}


def _options(report: _Report, other: _Report) -> str:
    """Return what options a run had that the other one had not."""
    given, others = report.get("options") or (), other.get("options") or ()
    alone = [option for option in given if option not in others]
    return " ".join(alone) or ("no other options" if given else "no options")


def _generation(report: _Report) -> object:
    return (report["environment"].get("stackFile") or {}).get("generation")


def _newly(
    status: str,
    earlier: Mapping[tuple[str, str], _Report],
    checks: Mapping[tuple[str, str], _Report],
) -> tuple[CaseChange, ...]:
    return tuple(
        _changed(check, check, earlier.get(key, {}).get("status", ""))
        for key, check in checks.items()
        if check["status"] == status and earlier.get(key, {}).get("status") != status
    )


def _changed(check: _Report, now: _Report, before: str | None = None) -> CaseChange:
    return CaseChange(
        check["id"],
        check["title"],
        check["level"],
        check["case"],
        check["status"] if before is None else before,
        now.get("reason", ""),
        now.get("missed", ""),
    )


def _cluster_versions(old: _Report, new: _Report) -> Iterator[VersionChange]:
    before, after = (dict(_flat(report["environment"])) for report in (old, new))
    for name in dict.fromkeys((*before, *after)):
        if before.get(name, "") != after.get(name, ""):
            yield VersionChange(name, before.get(name, ""), after.get(name, ""), ())


def _flat(environment: _Report) -> Iterator[tuple[str, str]]:
    """Yield what the cluster has once: each version with its name."""
    divvy, file = (environment.get(key) or {} for key in ("divvy", "stackFile"))
    yield "Divvy", str(divvy.get("version", ""))
    yield "Divvy's revision", str(divvy.get("revision", ""))
    yield "stack file", str(file.get("generation", ""))
    yield "Kubernetes", str(environment.get("kubernetes", ""))
    yield "workloads", str(environment.get("image", ""))


def _node_versions(
    former: Mapping[str, _Report], nodes: Mapping[str, _Report]
) -> Iterator[VersionChange]:
    changes: dict[tuple[str, str, str], list[str]] = {}
    for name, node in nodes.items():
        if name not in former:
            continue
        for key in dict.fromkeys((*former[name], *node)):
            before, after = (str(described.get(key, "")) for described in (former[name], node))
            if before != after and key not in _NO_VERSIONS:
                changes.setdefault((key, before, after), []).append(name)
    for (key, before, after), names in changes.items():
        yield VersionChange(key, before, after, tuple(names))


def _figures(
    earlier: Mapping[tuple[str, str], _Report], checks: Mapping[tuple[str, str], _Report]
) -> Iterator[SpeedChange]:
    for key, check in checks.items():
        former = earlier.get(key, {}).get("figures") or {}
        for unit, after in (check.get("figures") or {}).items():
            before = former.get(unit, 0)
            if before and abs(after / before - 1) >= _FIGURE_DEVIATION:
                yield SpeedChange(" ".join(key), unit, before, after)


def _durations(
    earlier: Mapping[tuple[str, str], _Report], checks: Mapping[tuple[str, str], _Report]
) -> Iterator[SpeedChange]:
    """Yield checks that took another time in the cases that both reports have."""
    seconds: dict[str, list[float]] = {}
    for key, check in checks.items():
        if key in earlier and "skipped" not in (check["status"], earlier[key]["status"]):
            both = seconds.setdefault(key[0], [0.0, 0.0])
            both[0] += earlier[key]["seconds"]
            both[1] += check["seconds"]
    for identity, (before, after) in seconds.items():
        longer, shorter = max(before, after), min(before, after)
        if shorter and longer - shorter >= _LEAST_SECONDS and longer >= _SLOWER * shorter:
            yield SpeedChange(identity, "s", round(before, 1), round(after, 1))
