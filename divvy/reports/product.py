"""Rows about GPUs of the CNCF's AI conformance product file, as far as a report shows them.

https://github.com/cncf/k8s-ai-conformance: docs/AIConformance-1.37.yaml
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from divvy.model.phrases import some

State = Literal["pass", "fail", "unknown"]
# Of an unknown row nothing is said: its status stays as the programme's own file has it.
_STATUS: Mapping[State, str] = {"pass": "Implemented", "fail": "Not Implemented", "unknown": ""}
_CASES_NAMED = 4


@dataclass(frozen=True)
class Requirement:
    """A row of the programme: at least one of ``needed`` has to pass for it to be shown.

    The other checks that name the row are as much part of it, and alone show something else.
    """

    area: str
    id: str
    level: str
    needed: tuple[str, ...]


REQUIREMENTS = (
    Requirement("accelerators", "driver_runtime_management", "SHOULD", ("NODE-11",)),
    Requirement("accelerators", "gpu_sharing", "SHOULD", ("ISO-04", "ISO-05", "ISO-10", "CLM-02")),
    Requirement("observability", "accelerator_metrics", "MUST", ("OBS-01",)),
    Requirement("security", "secure_accelerator_access", "MUST", ("ISO-02", "CLM-11")),
)


@dataclass(frozen=True)
class Row:
    """A requirement, its state, the reason, and the report's records of its checks."""

    requirement: Requirement
    state: State
    reason: str
    checks: Sequence[Mapping[str, Any]]

    @property
    def identities(self) -> list[str]:
        """Return the checks that were made."""
        identities = (check["id"] for check in self.checks if check["status"] != "skipped")
        return list(dict.fromkeys(identities))


def product_rows(report: Mapping[str, Any]) -> list[Row]:
    """Return a row for each requirement; on simulated GPUs none passes."""
    return [_row(report, requirement) for requirement in REQUIREMENTS]


def product_file(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return the product file of a report: its rows, and what else of it the report knows."""
    spec: dict[str, list[dict[str, Any]]] = {}
    for row in product_rows(report):
        spec.setdefault(row.requirement.area, []).append(
            {
                "id": row.requirement.id,
                "level": row.requirement.level,
                "status": _STATUS[row.state],
                "evidence": [f"file://junit.xml#{identity}" for identity in row.identities],
                "notes": "\n".join([f"{row.state}: {row.reason}", *_notes(row)]),
            }
        )
    version = ".".join(str(report["environment"].get("kubernetes", "")).split(".")[:2])
    return {"metadata": {"kubernetesVersion": version}, "spec": spec}


def _row(report: Mapping[str, Any], requirement: Requirement) -> Row:
    checks = [check for check in report["checks"] if requirement.id in check.get("cncf", ())]
    return Row(requirement, *_state(report, requirement, checks), checks)


def _state(
    report: Mapping[str, Any], requirement: Requirement, checks: Sequence[Mapping[str, Any]]
) -> tuple[State, str]:
    failed = list(dict.fromkeys(check["id"] for check in checks if check["status"] == "failed"))
    if failed:
        return "fail", f"{', '.join(failed)} failed"
    if report["mode"] != "hardware":
        return "unknown", f"the GPUs are {report['mode']}: nothing of it is shown on hardware"
    chosen = [option for option in report.get("only") or () if option.startswith("--select")]
    if chosen:
        return "unknown", f"not all checks were made: {' '.join(chosen)}"
    missed = [check for check in checks if check.get("missed") in ("option", "not made")]
    if missed:
        first = missed[0]
        return "unknown", f"{first['id']} was not made for {first['case']}: {first['reason']}"
    passed = {check["id"] for check in checks if check["status"] == "passed"}
    if passed.isdisjoint(requirement.needed):
        return "unknown", f"the cluster has nothing of which {_either(requirement.needed)} is true"
    part = " ".join(report.get("only") or ())
    return "pass", f"{len(passed)} checks passed{f', of a part: {part}' if part else ''}"


def _either(identities: Sequence[str]) -> str:
    return " or ".join(identities)


def _notes(row: Row) -> list[str]:
    """Return for each check in which cases it came out how."""
    cases: dict[tuple[str, str], list[str]] = {}
    for check in row.checks:
        cases.setdefault((check["id"], check["status"]), []).append(check["case"])
    lines = []
    for (identity, status), names in cases.items():
        lines.append(f"{identity} {status}: {some(names, _CASES_NAMED)}")
    return lines
