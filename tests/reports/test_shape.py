"""What is a whole report, and what would end a comparison after hours of checks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from divvy.reports.archive import condensed
from divvy.reports.shape import is_report
from tests.reports.documents import document, record

REPORT = document(record("passed", "a", gflops=10.0), record("skipped", "b", missed="not made"))


def test_accepts_what_a_run_writes() -> None:
    for report in (REPORT, condensed(REPORT), yaml.safe_load(yaml.safe_dump(REPORT))):
        assert is_report(report)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("mode",), None),
        (("mode",), ["hardware"]),
        (("checks",), {}),
        (("checks", 0), "passed"),
        (("checks", 0, "id"), ["a"]),
        (("checks", 0, "case"), {}),
        (("checks", 0, "seconds"), "1.5"),
        (("checks", 0, "figures"), {"gflops": "10"}),
        # Of a release to come: what it means for the result is not known.
        (("checks", 0, "status"), "unknown"),
        (("checks", 0, "level"), "MAY"),
        (("checks", 1, "missed"), ""),
        (("checks", 1, "missed"), "postponed"),
        (("environment",), None),
        (("environment", "nodes"), None),
        (("environment", "nodes", 0), "n1"),
        (("environment", "nodes", 0, "name"), {}),
        (("environment", "stackFile"), "stack.yaml"),
        (("options",), 1),
    ],
)
def test_refuses_another_shape(path: tuple[Any, ...], value: object) -> None:
    report = copy.deepcopy(REPORT)
    part: Any = report
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    assert not is_report(report)


@pytest.mark.parametrize("key", ["id", "case", "title", "level", "status", "seconds"])
def test_refuses_a_check_with_a_missing_part(key: str) -> None:
    report = copy.deepcopy(REPORT)
    del report["checks"][0][key]
    assert not is_report(report)


def test_refuses_a_report_that_is_endless_when_it_is_written_out() -> None:
    """Of ten lines of YAML each of which names the one above ten times."""
    bomb: object = "x"
    for _ in range(12):
        bomb = [bomb] * 10
    circle: list[object] = []
    circle.append(circle)
    for evidence in (bomb, circle):
        report = document(record("passed"))
        report["checks"][0]["evidence"] = evidence
        assert not is_report(report)
