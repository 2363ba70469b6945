"""The report of a run: one set of records, rendered for people and machines."""

from __future__ import annotations

import json
import re
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

from conformance.check import Check
from conformance.evidence import Evidence
from conformance.skips import Missed
from divvy.atomic_file import replace_file
from divvy.reports.result import result, statistics

# XML 1.0 has no other characters (section 2.2 of its specification).
_NOT_XML = re.compile("[^\\t\\n\\r\\x20-\\ud7ff\\ue000-\\ufffd\\U00010000-\\U0010ffff]")
DISCLAIMER = "SIMULATED GPUs: no CUDA hardware was exercised; this is not a hardware result."
# What each result says, for a reader who has not read the documents.
MEANING = {
    "success": "Everything that such a cluster can have was checked on hardware, and holds.",
    "partial": "Nothing failed; something was not checked, or is simulated.",
    "warning": "Everything that must hold does, as far as it was checked; a recommendation does "
    "not hold.",
    "failure": "Something that must hold does not.",
    "nothing checked": "No check could be made; the reasons are below.",
}


@dataclass(frozen=True)
class Record:
    """The outcome of one check in one case (a node, or a resource on a node).

    ``missed`` says of a skipped one why it was not made.
    """

    check: Check
    case: str
    status: str
    reason: str
    evidence: Evidence
    seconds: float
    missed: Missed | None = None

    @property
    def is_open(self) -> bool:
        """Return whether it must hold, and something kept it from being checked."""
        return self.missed == "not made" and self.check.level == "MUST"

    @property
    def key(self) -> str:
        """Return what names this record from run to run."""
        return f"{self.check.id} {self.case}"


@dataclass
class Report:
    """All records of a run, and what it ran against.

    ``only`` are the options that kept the run to a part of the checks or of the nodes, ``options``
    all that were given. With ``strict`` a recommendation that does not hold is a failure; with
    ``require`` what must hold has to be checked.
    """

    target: Mapping[str, Any]
    records: list[Record] = field(default_factory=list)
    only: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    strict: bool = False
    require: bool = False
    began: float = field(default_factory=time.time)
    ended: float = 0.0

    @property
    def simulated(self) -> bool:
        """Return whether any node's GPUs are simulated."""
        return any(node["simulated"] for node in self.target["nodes"])

    @property
    def mode(self) -> str:
        """Return simulated, hardware, or unknown if nothing said which it is."""
        if self.simulated:
            return "simulated"
        known = [node["simulated"] is False for node in self.target["nodes"]]
        return "hardware" if known and all(known) else "unknown"

    @property
    def result(self) -> str:
        """Return the word for the whole run: a key of MEANING."""
        if not self.target["nodes"]:
            return "nothing checked"
        return result(self._entries(), strict=self.strict, only=self.only, mode=self.mode)

    def counts_as_failure(self, record: Record) -> bool:
        """Return whether a check's failure is one of the run."""
        return record.status == "failed" and (self.strict or record.check.level == "MUST")

    @property
    def sound_nodes(self) -> list[str]:
        """Return the nodes on which checks passed, and none failed that counts as a failure."""
        failed = {_node_of(record) for record in self.records if self.counts_as_failure(record)}
        passed = {_node_of(record) for record in self.records if record.status == "passed"}
        names = (str(node["name"]) for node in self.target["nodes"])
        return [name for name in names if name in passed - failed]

    def write(self, folder: Path) -> None:
        """Write junit.xml, ctrf.json and report.html, then report.yaml: who finds it finds all."""
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "junit.xml": self.junit(),
            "ctrf.json": json.dumps(self.ctrf(), indent=1),
            "report.html": self.html(),
            "report.yaml": self.text(),
        }
        for name, text in texts.items():
            replace_file(folder / name, text.encode(), 0o644)

    def text(self) -> str:
        """Render the report as YAML."""
        return yaml.safe_dump(self.document(), sort_keys=False, width=100)

    def document(self) -> dict[str, Any]:
        """Render the report as plain values."""
        checks = self._entries()
        return {
            "apiVersion": "conformance.divvy.gpu/v1alpha1",
            "kind": "GpuConformanceReport",
            "result": self.result,
            "mode": self.mode,
            **({"disclaimer": DISCLAIMER} if self.simulated else {}),
            "began": _time(self.began),
            "ended": _time(self.ended),
            **({"only": list(self.only)} if self.only else {}),
            "options": list(self.options),
            "environment": dict(self.target),
            "statistics": statistics(checks),
            "checks": checks,
        }

    def _entries(self) -> list[dict[str, Any]]:
        return [self._entry(record) for record in self.records]

    def _entry(self, record: Record) -> dict[str, Any]:
        entry: dict[str, Any] = {
            "id": record.check.id,
            "case": record.case,
            "title": record.check.title,
            "level": record.check.level,
            "status": record.status,
            "evidenceLevel": self.mode,
            "seconds": round(record.seconds, 2),
        }
        if record.missed:
            entry["missed"] = record.missed
        if record.reason:
            entry["reason"] = record.reason
        if record.evidence.expected:
            entry |= {"expected": record.evidence.expected, "actual": record.evidence.actual}
        if record.evidence.command:
            entry["command"] = record.evidence.command
        # Simulated GPUs share the processors of one machine: how fast they are says nothing.
        if record.evidence.figures and self.mode == "hardware":
            entry["figures"] = dict(record.evidence.figures)
        if record.evidence.details:
            entry["evidence"] = list(record.evidence.details)
        if record.status == "failed":
            entry["remedy"] = record.check.remedy
        if record.check.cncf:
            entry["cncf"] = list(record.check.cncf)
        return entry

    def junit(self) -> str:
        """Render JUnit XML."""
        suite = ElementTree.Element(
            "testsuite",
            name=f"divvy {'(SIMULATED) ' if self.simulated else ''}{self.target['stack']}",
            tests=str(len(self.records)),
            failures=str(sum(self.counts_as_failure(record) for record in self.records)),
            errors=str(sum(record.is_open for record in self.records) if self.require else 0),
            skipped=str(sum(self._is_skipped(record) for record in self.records)),
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
            properties = ElementTree.SubElement(case, "properties")
            ElementTree.SubElement(properties, "property", name="level", value=record.check.level)
            self._add_outcome(case, record)
        text: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
        return text.decode()

    def _is_skipped(self, record: Record) -> bool:
        if record.status == "failed":
            return not self.counts_as_failure(record)
        return record.status == "skipped" and not (self.require and record.is_open)

    def _add_outcome(self, case: ElementTree.Element, record: Record) -> None:
        """Report how a case ended, so that whoever reads it comes to the command's exit code."""
        reason, details = record.reason, "\n".join(record.evidence.details)
        if self.counts_as_failure(record):
            element = ElementTree.SubElement(case, "failure", type=record.check.level)
        elif record.status == "failed":
            element = ElementTree.SubElement(case, "skipped")
            reason = f"a recommendation does not hold: {reason}"
        elif record.status == "skipped":
            kind = "error" if self.require and record.is_open else "skipped"
            element, details = ElementTree.SubElement(case, kind), ""
        else:
            return
        element.set("message", _xml(reason))
        element.text = _xml(details) or None

    def ctrf(self) -> dict[str, Any]:
        """Render the Common Test Report Format."""
        counts = Counter(record.status for record in self.records)
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
                "environment": {"simulated": self.simulated, **dict(self.target)},
            },
        }

    def _of_node(self, name: str) -> Counter[str]:
        own = (record for record in self.records if _node_of(record) == name)
        return Counter(record.status for record in own)

    def html(self) -> str:
        """Render one self-contained page."""
        source = files("conformance.report").joinpath("report.html.j2").read_text("utf-8")
        template = jinja2.Environment(autoescape=True).from_string(source)
        return template.render(
            report=self,
            document=self.document(),
            disclaimer=DISCLAIMER,
            meaning=MEANING[self.result],
            by_node={node["name"]: self._of_node(node["name"]) for node in self.target["nodes"]},
            cases_of=Counter(record.check.id for record in self.records),
            titles={record.check.id: record.check.title for record in self.records},
        )


def _node_of(record: Record) -> str:
    return record.case.partition(":")[0]


def _xml(text: str) -> str:
    """Return a text without the characters that no XML may hold: logs have colours in them."""
    return _NOT_XML.sub("\ufffd", text)


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
