"""The report of a run: one set of records, rendered for people and machines."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jinja2
import yaml

from conformance.catalogue import Check
from conformance.evidence import Evidence

DISCLAIMER = "SIMULATED GPUs: no CUDA hardware was exercised; this is not a hardware result."
# What each result says, for a reader who has not read the documents.
MEANING = {
    "success": "Everything was checked on hardware, and holds.",
    "partial": "Nothing that must hold failed; something was not checked, is simulated, or is a "
    "recommendation that does not hold.",
    "failure": "Something that must hold does not.",
    "nothing checked": "No check could be made; the reasons are below.",
}


@dataclass(frozen=True)
class Record:
    """The outcome of one check in one case (a node, or a resource on a node)."""

    check: Check
    case: str
    status: str
    reason: str
    evidence: Evidence
    seconds: float

    @property
    def key(self) -> str:
        """Return what names this record from run to run."""
        return f"{self.check.id} {self.case}"


@dataclass
class Report:
    """All records of a run, and what it ran against."""

    site: Mapping[str, Any]
    records: list[Record] = field(default_factory=list)
    began: float = field(default_factory=time.time)
    ended: float = 0.0

    @property
    def simulated(self) -> bool:
        """Tell whether any node's GPUs are simulated."""
        return any(node["simulated"] for node in self.site["nodes"])

    @property
    def counts(self) -> Counter[str]:
        """Count records by status."""
        return Counter(record.status for record in self.records)

    @property
    def result(self) -> str:
        """Return success, partial (skipped or simulated), failure, or nothing checked."""
        counts = self.counts
        if not counts["passed"] and not counts["failed"]:
            return "nothing checked"
        if any(
            record.status == "failed" and record.check.level == "MUST" for record in self.records
        ):
            return "failure"
        return "partial" if counts["skipped"] or counts["failed"] or self.simulated else "success"

    def write(self, folder: Path) -> None:
        """Write report.yaml, junit.xml, ctrf.json and report.html."""
        folder.mkdir(parents=True, exist_ok=True)
        document = self.document()
        (folder / "report.yaml").write_text(yaml.safe_dump(document, sort_keys=False, width=100))
        (folder / "junit.xml").write_text(self.junit())
        (folder / "ctrf.json").write_text(json.dumps(self.ctrf(), indent=1))
        (folder / "report.html").write_text(self.html())

    def document(self) -> dict[str, Any]:
        """Render the report as plain values."""
        counts = self.counts
        return {
            "apiVersion": "conformance.divvy.gpu/v1alpha1",
            "kind": "GpuConformanceReport",
            "result": self.result,
            "mode": "simulated" if self.simulated else "hardware",
            **({"disclaimer": DISCLAIMER} if self.simulated else {}),
            "began": _time(self.began),
            "ended": _time(self.ended),
            "environment": dict(self.site),
            "statistics": {name: counts[name] for name in ("passed", "failed", "skipped")},
            "checks": [self._entry(record) for record in self.records],
        }

    def _entry(self, record: Record) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": record.check.id,
            "case": record.case,
            "title": record.check.title,
            "level": record.check.level,
            "status": record.status,
            "evidenceLevel": "simulated" if self.simulated else "hardware",
            "seconds": round(record.seconds, 2),
        }
        if record.reason:
            entry["reason"] = record.reason
        if record.evidence.expected:
            entry |= {"expected": record.evidence.expected, "actual": record.evidence.actual}
        if record.evidence.command:
            entry["command"] = record.evidence.command
        if record.evidence.details:
            entry["evidence"] = list(record.evidence.details)
        if record.status == "failed":
            entry["remedy"] = record.check.remedy
        if record.check.cncf:
            entry["cncf"] = list(record.check.cncf)
        return entry

    def junit(self) -> str:
        """Render JUnit XML."""
        counts = self.counts
        suite = ElementTree.Element(
            "testsuite",
            name=f"divvy {'(SIMULATED) ' if self.simulated else ''}{self.site['stack']}",
            tests=str(len(self.records)),
            failures=str(counts["failed"]),
            skipped=str(counts["skipped"]),
            time=f"{self.ended - self.began:.2f}",
        )
        for record in self.records:
            case = ElementTree.SubElement(
                suite,
                "testcase",
                classname=record.check.id,
                name=f"{record.check.title} [{record.case}]",
                time=f"{record.seconds:.2f}",
            )
            if record.status == "failed":
                failure = ElementTree.SubElement(case, "failure", message=record.reason)
                failure.text = "\n".join(record.evidence.details)
            elif record.status == "skipped":
                ElementTree.SubElement(case, "skipped", message=record.reason)
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)

    def ctrf(self) -> dict[str, Any]:
        """Render the Common Test Report Format."""
        counts = self.counts
        return {
            "reportFormat": "CTRF",
            "specVersion": "0.0.0",
            "generatedBy": "divvy",
            "results": {
                "tool": {"name": "divvy verify"},
                "summary": {
                    "tests": len(self.records),
                    "passed": counts["passed"],
                    "failed": counts["failed"],
                    "skipped": counts["skipped"],
                    "pending": 0,
                    "other": 0,
                    "start": int(self.began * 1000),
                    "stop": int(self.ended * 1000),
                },
                "tests": [
                    {
                        "name": record.key,
                        "status": record.status,
                        "duration": int(record.seconds * 1000),
                        "suite": [record.check.id, record.case],
                        "message": record.reason,
                        "stdout": list(record.evidence.details),
                    }
                    for record in self.records
                ],
                "environment": {"simulated": self.simulated, **dict(self.site)},
            },
        }

    def _of_node(self, name: str) -> Counter[str]:
        own = (record for record in self.records if record.case.split(":")[0] == name)
        return Counter(record.status for record in own)

    def html(self) -> str:
        """Render one self-contained page."""
        source = files("conformance").joinpath("report.html.j2").read_text()
        template = jinja2.Environment(autoescape=True).from_string(source)
        return template.render(
            report=self,
            document=self.document(),
            disclaimer=DISCLAIMER,
            meaning=MEANING[self.result],
            by_node={node["name"]: self._of_node(node["name"]) for node in self.site["nodes"]},
            cases_of=Counter(record.check.id for record in self.records),
            titles={record.check.id: record.check.title for record in self.records},
        )


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
