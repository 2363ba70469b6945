"""What two reports have in common, and what not."""

from __future__ import annotations

from typing import Any

import pytest

from conformance.check import Check
from conformance.report.report import Record
from divvy.reports.comparison import (
    CaseChange,
    SpeedChange,
    VersionChange,
    compare_reports,
    continued,
)
from tests.reports.documents import MUST, SHOULD, document, record


def cases(changes: tuple[CaseChange, ...]) -> list[str]:
    return [change.case for change in changes]


def test_reports_changed_outcomes() -> None:
    old = document(
        record("passed", "a"), record("failed", "b"), record("passed", "c"), record("passed", "d"),
        record("failed", "e"), record("skipped", "f", missed="option"), record("passed", "g"),
    )  # fmt: skip
    new = document(
        record("failed", "a", reason="sees two"), record("passed", "b"),
        record("skipped", "c", reason="held", missed="not made"), record("passed", "d"),
        record("failed", "e"), record("passed", "f"), record("failed", "h"),
    )  # fmt: skip
    comparison = compare_reports(old, new)
    assert cases(comparison.newly_failing) == ["a", "h"]
    assert cases(comparison.newly_passing) == ["b", "f"]
    assert cases(comparison.newly_not_checked) == ["c", "g"]
    first, second = comparison.newly_failing
    assert (first.before, first.reason) == ("passed", "sees two")
    assert second.before == ""
    assert not comparison.outcomes_are_the_same
    assert compare_reports(new, new).outcomes_are_the_same


def test_reports_nothing_as_lost_that_an_option_left_out() -> None:
    """A shorter run is no regression; a MUST check that something prevents may hide one."""
    old = document(
        record("passed", "a"), record("passed", "b"), record("passed", "c", SHOULD),
        record("passed", "d"),
    )  # fmt: skip
    new = document(
        record("skipped", "a", missed="option"), record("skipped", "b", missed="not made"),
        record("skipped", "c", SHOULD, missed="not made"),
    )  # fmt: skip
    comparison = compare_reports(old, new)
    assert cases(comparison.newly_not_checked) == ["a", "b", "c", "d"]
    assert cases(comparison.lost) == ["b", "d"]
    other_options = compare_reports(old, {**new, "options": ["--pool=p"]})
    assert other_options.options == ("no options", "--pool=p")
    image = ["--image=x"]
    alike = compare_reports({**old, "options": image}, {**new, "options": ["--pool=p", *image]})
    assert alike.options == ("no other options", "--pool=p")
    assert cases(other_options.newly_not_checked) == ["a", "b", "c"]
    assert (other_options.left_out, cases(other_options.lost)) == (1, ["b"])


def test_names_nodes_that_left_once() -> None:
    old = document(record("passed", "n1:gpu"), record("passed", "n2:gpu"), nodes=("n1", "n2"))
    new = document(record("passed", "n1:gpu"), record("passed", "n3:gpu"), nodes=("n1", "n3"))
    comparison = compare_reports(old, new)
    assert (comparison.nodes_removed, comparison.nodes_added) == (("n2",), ("n3",))
    assert cases(comparison.newly_not_checked) == []
    part = compare_reports(old, {**new, "options": ["--pool=p"]})
    assert (part.nodes_removed, part.nodes_added, part.left_out) == ((), (), 1)


def test_reports_changed_versions() -> None:
    old = document(record("passed"), nodes=("n1", "n2", "n3"))
    new = document(record("passed"), nodes=("n1", "n2", "n3"), kubernetes="v1.37.2", kernel="6.14")
    new["environment"]["nodes"][0]["driver"] = "580.95"
    new["environment"]["nodes"][2]["driver"] = "580.95"
    assert compare_reports(old, new).versions == (
        VersionChange("Kubernetes", "v1.36.3", "v1.37.2", ()),
        VersionChange("driver", "550.163.01", "580.95", ("n1", "n3")),
        VersionChange("kernel", "", "6.14", ("n1", "n2", "n3")),
    )


def test_reports_changed_speed() -> None:
    """A tenth of a figure counts; seconds count where they are many and half as many again."""
    old = document(
        record("passed", "a", gflops=100.0), record("passed", "b", gflops=100.0),
        record("passed", "c", SHOULD, seconds=9.0), record("passed", "d", seconds=30.0),
    )  # fmt: skip
    new = document(
        record("passed", "a", gflops=70.0), record("passed", "b", gflops=95.0),
        record("passed", "c", SHOULD, seconds=18.5), record("passed", "d", seconds=50.0),
    )  # fmt: skip
    comparison = compare_reports(old, new)
    assert comparison.speeds == (
        SpeedChange(f"{MUST.id} a", "gflops", 100.0, 70.0),
        SpeedChange(MUST.id, "s", 31.0, 51.0),
    )
    assert comparison.speeds[0].part == pytest.approx(-0.3)


def test_continues_the_report_before_by_one_of_changed_nodes() -> None:
    old = document(
        record("passed", "n1:gpu"), record("failed", "n2:gpu"), record("passed", "p", SHOULD),
        record("passed", "gone:gpu"), nodes=("n1", "n2", "gone"),
    )  # fmt: skip
    new = part(
        record("passed", "n2:gpu"), record("failed", "p", SHOULD), nodes=("n2", "n3"), others=["n1"]
    )
    whole = continued(old, new)
    assert "only" not in whole
    assert "otherNodes" not in whole["environment"]
    assert [node["name"] for node in whole["environment"]["nodes"]] == ["n1", "n2", "n3"]
    comparison = compare_reports(old, whole)
    assert cases(comparison.newly_passing) == ["n2:gpu"]
    assert cases(comparison.newly_failing) == ["p"]
    assert (cases(comparison.newly_not_checked), comparison.nodes_removed) == ([], ("gone",))
    counts = {"passed": 2, "failed": 1, "skipped": 0, "requiredNotChecked": 0}
    assert whole["statistics"] == counts


def part(*records: Record, others: list[str], nodes: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the report of a run with --changed, where other nodes are still there."""
    report = document(*records, nodes=nodes)
    report["environment"]["otherNodes"] = others
    return {**report, "only": ["--changed"]}


@pytest.mark.parametrize(
    ("cluster", "level", "options", "result"),
    [
        ("passed", MUST, [], "success"),
        ("failed", MUST, [], "failure"),
        ("failed", SHOULD, [], "warning"),
        ("failed", SHOULD, ["--strict"], "failure"),
    ],
)
def test_derives_the_result_from_all_checks_that_it_continues(
    cluster: str, level: Check, options: list[str], result: str
) -> None:
    """What was wrong once and is repaired fails no later run, and what fails now does."""
    for before in ("passed", "failed"):
        old = document(record("passed", "n1:gpu"), record(before, "cluster"))
        new = part(record(cluster, "cluster", level), others=["n1"])
        assert continued(old, {**new, "options": options})["result"] == result
    selected = continued(old, {**new, "only": ["--changed", "--pool=p"]})
    assert selected["only"] == ["--pool=p"]


def test_continues_nothing_under_another_stack_file() -> None:
    """Nodes that a sample leaves out were checked under the one before."""
    old = document(record("passed", "n1:gpu"), record("passed", "n2:gpu"), nodes=("n1", "n2"))
    new = part(record("passed", "n2:gpu"), nodes=("n2",), others=["n1"])
    new["environment"]["stackFile"] = {"generation": "another"}
    whole = continued(old, new)
    assert [node["name"] for node in whole["environment"]["nodes"]] == ["n2"]
    assert [check["case"] for check in whole["checks"]] == ["n2:gpu"]


@pytest.mark.parametrize("simulated", [True, False])
def test_refuses_to_compare_simulation_and_hardware(simulated: bool) -> None:
    old = document(record("passed"), simulated=simulated)
    new = document(record("passed"), simulated=not simulated)
    with pytest.raises(ValueError, match="cannot be compared with a"):
        compare_reports(old, new)


def test_refuses_to_compare_reports_of_two_stacks() -> None:
    old, new = document(record("passed")), document(record("passed"))
    old["environment"]["stack"] = "other"
    with pytest.raises(ValueError, match="a report of other cannot be compared with one of s"):
        compare_reports(old, new)
