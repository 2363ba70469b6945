"""The record of a run, as values: what each step found, and what came of the whole."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

KIND, VERSION = "DivvyHardwareRecord", 1
DISCLAIMER = "SIMULATED: no GPU was behind this run, and none of its figures is a measurement."

_IDENTITY = re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

# failed: a finding does not hold, or the step broke, or it did not end in its time. not made:
# this machine cannot have it, or it was not asked for; the reason says which.
Status = Literal["passed", "failed", "not made"]


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at; ``holds`` None: it is told, and nothing is expected of it."""

    what: str
    expected: str
    found: str
    holds: bool | None


@dataclass(frozen=True)
class Table:
    """Figures or answers side by side."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Step:
    """What came of one step; ``log`` is the end of what its programs said, where it failed."""

    name: str
    title: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    findings: tuple[Finding, ...] = ()
    tables: tuple[Table, ...] = ()
    log: str = ""


@dataclass(frozen=True)
class Run:
    """A whole run: on what, with which kit, and its steps in their order."""

    machine: Mapping[str, Any]
    kit: Mapping[str, str]
    began: str
    seconds: float
    steps: tuple[Step, ...] = field(default=())
    options: tuple[str, ...] = ()
    interrupted: bool = False

    @property
    def simulated(self) -> bool:
        """Return whether the driver was the simulated one."""
        return bool(self.machine["simulated"])

    @property
    def result(self) -> str:
        """Return failure, partial (something was not made, or is simulated) or success."""
        counts = Counter(step.status for step in self.steps)
        if counts["failed"]:
            return "failure"
        whole = not (counts["not made"] or self.simulated or self.interrupted)
        return "success" if whole else "partial"

    def document(self) -> dict[str, Any]:
        """Render the run as plain values."""
        return {
            "kind": KIND,
            "version": VERSION,
            **({"disclaimer": DISCLAIMER} if self.simulated else {}),
            "simulated": self.simulated,
            "result": self.result,
            "interrupted": self.interrupted,
            "began": self.began,
            "seconds": round(self.seconds, 1),
            "options": list(self.options),
            "kit": dict(self.kit),
            "machine": dict(self.machine),
            "steps": [asdict(step) for step in self.steps],
        }


def read_run(document: Mapping[str, Any]) -> Run:
    """Read what ``document`` wrote; raises ValueError where it is something else."""
    if (document.get("kind"), document.get("version")) != (KIND, VERSION):
        raise ValueError(f"it is no {KIND} of version {VERSION}")
    return Run(
        machine=document["machine"],
        kit=document["kit"],
        began=document["began"],
        seconds=document["seconds"],
        steps=tuple(read_step(step) for step in document["steps"]),
        options=tuple(document["options"]),
        interrupted=document["interrupted"],
    )


def read_step(raw: Mapping[str, Any]) -> Step:
    """Read one step from plain values."""
    return Step(
        **{
            **raw,
            "findings": tuple(Finding(**finding) for finding in raw["findings"]),
            "tables": tuple(
                Table(table["title"], tuple(table["head"]), tuple(map(tuple, table["rows"])))
                for table in raw["tables"]
            ),
        }
    )


def without_identities(step: Step) -> Step:
    """Return a step without what tells whose GPUs they are: a record is to be shown around."""
    return read_step(json.loads(_IDENTITY.sub(r"\1-…", json.dumps(asdict(step)))))


def status_of(findings: Iterable[Finding]) -> tuple[Status, str]:
    """Return what findings amount to, and which of them do not hold."""
    wrong = [finding for finding in findings if finding.holds is False]
    reason = "; ".join(
        f"{finding.what}: expected {finding.expected}, found {finding.found}" for finding in wrong
    )
    return ("failed" if wrong else "passed"), reason
