"""The report: results, simulation said everywhere, and what may be a baseline."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from conformance.catalogue import CATALOGUE, Check
from conformance.evidence import Evidence
from conformance.report import MEANING, Record, Report
from divvy.render.conformance import baseline_lines, compared, summary_lines

MUST = next(check for check in CATALOGUE.values() if check.level == "MUST")
SHOULD = next(check for check in CATALOGUE.values() if check.level == "SHOULD")


def record(status: str, check: Check = MUST, case: str = "n1", reason: str = "") -> Record:
    evidence = Evidence(expected="one", actual="two", details=["<seen & kept>"])
    return Record(check, case, status, reason, evidence, 0.5)


def report(*records: Record, simulated: bool = False) -> Report:
    node = {
        "name": "n1",
        "pool": "p",
        "profile": "whole",
        "gpus": 2,
        "model": "T4",
        "driver": "550.163.01",
        "simulated": simulated,
    }
    site = {"stack": "s", "image": "", "nodes": [node]}
    return Report(site, list(records), began=0.0, ended=60.0)


@pytest.mark.parametrize(
    ("records", "result"),
    [
        ([record("passed")], "success"),
        ([record("passed"), record("skipped", reason="needs --exclusive")], "partial"),
        ([record("passed"), record("failed", SHOULD)], "partial"),
        ([record("passed"), record("failed")], "failure"),
        ([record("skipped", reason="needs hardware")], "nothing checked"),
        ([], "nothing checked"),
    ],
)
def test_result(records: list[Record], result: str) -> None:
    assert report(*records).result == result


def test_what_is_simulated_is_never_a_success() -> None:
    assert report(record("passed"), simulated=True).result == "partial"


def test_simulated_stands_in_every_form(tmp_path: Path) -> None:
    report(record("passed"), simulated=True).write(tmp_path)
    document = yaml.safe_load((tmp_path / "report.yaml").read_text())
    assert document["mode"] == "simulated"
    assert {check["evidenceLevel"] for check in document["checks"]} == {"simulated"}
    html = (tmp_path / "report.html").read_text()
    title = html[html.index("<title>") : html.index("</title>")]
    assert "SIMULATED" in title
    assert document["disclaimer"] in html
    assert "SIMULATED" in ElementTree.parse(tmp_path / "junit.xml").getroot().attrib["name"]
    assert json.loads((tmp_path / "ctrf.json").read_text())["results"]["environment"]["simulated"]
    first = next(summary_lines(document)).plain
    assert first == "partial (SIMULATED): 1 passed, 0 failed, 0 skipped"


def test_hardware_is_not_called_simulated() -> None:
    found = report(record("passed"))
    assert "SIMULATED" not in found.html()
    assert next(summary_lines(found.document())).plain.startswith("success: ")


def test_a_failure_is_told_with_its_remedy() -> None:
    lines = [line.plain for line in summary_lines(report(record("failed")).document())]
    text = "\n".join(lines)
    assert "expected: one" in text
    assert "actual:   two" in text
    assert MUST.remedy.split(maxsplit=1)[0] in text
    assert max(map(len, lines)) < 80


@pytest.mark.parametrize("status", ["passed", "failed", "skipped"])
def test_a_report_says_what_its_result_means(status: str) -> None:
    found = report(record(status))
    assert MEANING[found.result] in found.html()


def test_evidence_is_escaped() -> None:
    assert "&lt;seen &amp; kept&gt;" in report(record("failed")).html()


def test_what_changed_since_the_baseline() -> None:
    def document(**statuses: str) -> dict[str, object]:
        return report(*(record(status, case=case) for case, status in statuses.items())).document()

    old = document(a="passed", b="failed", c="passed", d="passed", e="failed")
    new = document(a="failed", b="passed", c="skipped", d="passed", e="failed")
    assert compared(old, new) == {
        "broke": [f"{MUST.id} a"],
        "mended": [f"{MUST.id} b"],
        "no longer checked": [f"{MUST.id} c"],
    }
    assert [line.plain.strip() for line in baseline_lines(old, old)] == ["the same as the baseline"]


@pytest.mark.parametrize("simulated", [True, False])
def test_simulation_and_hardware_are_not_compared(simulated: bool) -> None:
    old = report(record("passed"), simulated=simulated).document()
    new = report(record("passed"), simulated=not simulated).document()
    with pytest.raises(ValueError, match="no baseline"):
        compared(old, new)
