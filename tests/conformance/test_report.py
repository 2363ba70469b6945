"""The report: results, and simulation said everywhere."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from conformance.catalogue import CATALOGUE
from conformance.check import Check
from conformance.evidence import Evidence
from conformance.report.report import MEANING, Record, Report
from conformance.skips import Missed
from divvy.render.views.conformance import summary_lines

MUST = next(check for check in CATALOGUE.values() if check.level == "MUST")
SHOULD = next(check for check in CATALOGUE.values() if check.level == "SHOULD")


def record(
    status: str,
    check: Check = MUST,
    case: str = "n1",
    reason: str = "",
    missed: Missed | None = None,
) -> Record:
    evidence = Evidence(expected="one", actual="two", details=["<seen & kept>"])
    return Record(check, case, status, reason, evidence, 0.5, missed)


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
    target = {"stack": "s", "image": "", "nodes": [node]}
    return Report(target, list(records), began=0.0, ended=60.0)


@pytest.mark.parametrize(
    ("records", "result"),
    [
        ([record("passed")], "success"),
        ([record("passed"), record("skipped", missed="option")], "partial"),
        ([record("passed"), record("skipped", missed="not made")], "partial"),
        # What such a cluster cannot have is not missed: success can be reached.
        ([record("passed"), record("skipped", missed="not applicable")], "success"),
        ([record("passed"), record("failed", SHOULD)], "warning"),
        ([record("passed"), record("failed")], "failure"),
        ([record("skipped", reason="needs hardware")], "nothing checked"),
        ([], "nothing checked"),
    ],
)
def test_derives_the_result_from_its_records(records: list[Record], result: str) -> None:
    assert report(*records).result == result


def test_fails_only_a_strict_run_by_a_recommendation() -> None:
    """JUnit's reader and the exit code's come to the same."""
    lax, strict = (
        Report(report().target, [record("passed"), record("failed", SHOULD)], strict=strict)
        for strict in (False, True)
    )
    assert (lax.result, strict.result) == ("warning", "failure")
    loose, hard = (ElementTree.fromstring(run_report.junit()) for run_report in (lax, strict))
    assert (loose.attrib["failures"], loose.attrib["skipped"]) == ("0", "1")
    skipped = loose[1].find("skipped")
    assert skipped is not None
    assert skipped.attrib["message"].startswith("a recommendation does not hold")
    assert (hard.attrib["failures"], hard.attrib["skipped"]) == ("1", "0")
    assert loose[1].find("properties/property[@value='SHOULD']") is not None


def test_errors_on_a_required_check_that_was_not_made() -> None:
    records = [record("passed"), record("skipped", reason="held", missed="not made")]
    lax, required = (Report(report().target, records, require=require) for require in (False, True))
    assert ElementTree.fromstring(lax.junit()).attrib["errors"] == "0"
    suite = ElementTree.fromstring(required.junit())
    assert (suite.attrib["errors"], suite.attrib["skipped"]) == ("1", "0")
    assert suite[1].find("error") is not None


def test_reports_simulated_gpus_never_as_a_success() -> None:
    assert report(record("passed"), simulated=True).result == "partial"


def test_marks_simulated_results_in_every_format(tmp_path: Path) -> None:
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


def test_calls_hardware_not_simulated() -> None:
    passed = report(record("passed"))
    assert "SIMULATED" not in passed.html()
    assert next(summary_lines(passed.document())).plain.startswith("success: ")


def test_reports_a_failure_with_its_remedy() -> None:
    lines = [line.plain for line in summary_lines(report(record("failed")).document())]
    text = "\n".join(lines)
    assert "expected: one" in text
    assert "actual:   two" in text
    assert MUST.remedy.split(maxsplit=1)[0] in text
    assert max(map(len, lines)) < 80


@pytest.mark.parametrize("status", ["passed", "failed", "skipped"])
def test_explains_its_result(status: str) -> None:
    run_report = report(record(status))
    assert MEANING[run_report.result] in run_report.html()


def test_escapes_evidence() -> None:
    assert "&lt;seen &amp; kept&gt;" in report(record("failed")).html()


def test_counts_required_checks_not_made_in_the_first_line() -> None:
    document = report(
        record("passed"),
        record("skipped", case="a", missed="not made", reason="a quota"),
        record("skipped", case="b", missed="option"),
        record("skipped", SHOULD, missed="not made"),
    ).document()
    assert document["statistics"]["requiredNotChecked"] == 1
    first = next(summary_lines(document)).plain
    assert first == "partial: 1 passed, 0 failed, 3 skipped (1 required not checked)"


def test_counts_gpus_of_unknown_kind_as_no_hardware() -> None:
    passed = report(record("passed"))
    passed.target["nodes"][0]["simulated"] = None
    assert (passed.mode, passed.result) == ("unknown", "partial")


def test_counts_a_cluster_without_nodes_as_not_checked() -> None:
    failed = report(record("failed", SHOULD, case="p"))
    failed.target["nodes"].clear()
    assert failed.result == "nothing checked"


def test_reports_part_of_the_checks_or_nodes_never_as_a_success() -> None:
    passed = report(record("passed"))
    passed.only = ("--select=NODE-01", "--sample=1")
    assert passed.result == "partial"
    assert passed.document()["only"] == ["--select=NODE-01", "--sample=1"]
    assert "--select=NODE-01 --sample=1" in passed.html()
    assert "only" not in report(record("passed")).document()


def test_strips_the_colours_of_a_log(tmp_path: Path) -> None:
    coloured = "\x1b[31mGPU 0: FAULTY\x1b[0m \x00\ufffe"
    coloured_report = report(record("failed", reason=coloured), record("skipped", reason=coloured))
    coloured_report.records[0].evidence.details.append(coloured)
    coloured_report.records[0].evidence.actual = coloured
    coloured_report.write(tmp_path)
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert "GPU 0: FAULTY" in str(suite[0].findtext("failure"))
    document = yaml.safe_load((tmp_path / "report.yaml").read_text())
    assert coloured in document["checks"][0]["evidence"]
    for line in summary_lines(document):
        assert line.plain.isprintable(), line.plain


def test_writes_no_report_without_the_files_beside_it(tmp_path: Path) -> None:
    """The command reads report.yaml, and takes the others for those of the same run."""
    (tmp_path / "report.html").mkdir()
    with pytest.raises(IsADirectoryError):
        report(record("passed")).write(tmp_path)
    assert not (tmp_path / "report.yaml").exists()


def test_reports_no_figures_of_simulated_gpus() -> None:
    """They share the processors of one machine: a comparison would name changes that are none."""
    for simulated in (False, True):
        measured = record("passed")
        measured.evidence.measure("Gflop/s", 120.0)
        measured.evidence.measure("GB/s", 0.0)
        (check,) = report(measured, simulated=simulated).document()["checks"]
        assert check.get("figures") == (None if simulated else {"Gflop/s": 120.0})


def test_counts_nodes_as_sound_when_something_passed_and_nothing_failed() -> None:
    mixed = report(
        record("passed", case="a:gpu"), record("failed", SHOULD, case="a"),
        record("passed", case="b"), record("failed", case="b:gpu"),
        record("skipped", case="c", missed="not made"), record("passed", case="training"),
    )  # fmt: skip
    mixed.target["nodes"][:] = [{"name": name, "simulated": False} for name in "abc"]
    assert mixed.sound_nodes == ["a"]
    mixed.strict = True
    assert mixed.sound_nodes == []
