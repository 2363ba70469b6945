"""Conformance reports for tests, as `divvy verify` writes them."""

from __future__ import annotations

from typing import Any

from conformance.catalogue import CATALOGUE
from conformance.check import Check
from conformance.evidence import Evidence
from conformance.report.report import Record, Report
from conformance.skips import Missed

MUST = next(check for check in CATALOGUE.values() if check.level == "MUST")
SHOULD = next(check for check in CATALOGUE.values() if check.level == "SHOULD")


def record(
    status: str,
    case: str = "n1",
    check: Check = MUST,
    *,
    reason: str = "",
    missed: Missed | None = None,
    seconds: float = 0.5,
    **figures: float,
) -> Record:
    """Return the outcome of a check in one case."""
    evidence = Evidence("one", "two", "gpu-burn", [f"log of {case}"])
    for unit, figure in figures.items():
        evidence.measure(unit, figure)
    return Record(check, case, status, reason, evidence, seconds, missed)


def document(
    *records: Record,
    simulated: bool = False,
    nodes: tuple[str, ...] = ("n1",),
    options: tuple[str, ...] = (),
    kubernetes: str = "v1.36.3",
    **of_nodes: Any,
) -> dict[str, Any]:
    """Return the report of a run over these nodes."""
    named = [
        {"name": name, "driver": "550.163.01", "simulated": simulated, **of_nodes} for name in nodes
    ]
    target = {"stack": "s", "image": "", "kubernetes": kubernetes, "nodes": named}
    return Report(target, list(records), options=options, began=0.0, ended=60.0).document()
