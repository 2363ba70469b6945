"""What the checks said of each configuration, as docs/field/results.json keeps it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "docs/field/results.json"


@dataclass(frozen=True)
class Outcome:
    """One check in one case; ``reason`` is what was expected and seen, or why it was not made."""

    id: str
    case: str
    status: str
    missed: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Run:
    """One configuration's run; ``target`` is the implementation's name."""

    target: str
    configuration: str
    title: str
    outcomes: tuple[Outcome, ...]

    @property
    def counts(self) -> Counter[str]:
        """Count the cases by status."""
        return Counter(outcome.status for outcome in self.outcomes)


@dataclass(frozen=True)
class Results:
    """All configurations of one day, and the versions of what was deployed."""

    date: str
    versions: Mapping[str, str]
    runs: tuple[Run, ...]


def run_of(target: str, configuration: str, title: str, report: Mapping[str, Any]) -> Run:
    """Read the report of a run of `divvy verify`."""
    outcomes = (
        Outcome(
            check["id"],
            check["case"],
            check["status"],
            check.get("missed") or "",
            check.get("reason") or "",
        )
        for check in report["checks"]
    )
    return Run(target, configuration, title, tuple(outcomes))


def write_results(date: str, versions: Mapping[str, str], runs: Sequence[Run]) -> None:
    """Write the file."""
    document = {
        "date": date,
        "versions": dict(versions),
        "runs": [
            {
                "target": run.target,
                "configuration": run.configuration,
                "title": run.title,
                "outcomes": [
                    {key: text for key, text in asdict(outcome).items() if text}
                    for outcome in run.outcomes
                ],
            }
            for run in runs
        ],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_results() -> Results:
    """Read the file."""
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    runs = (
        Run(
            run["target"],
            run["configuration"],
            run["title"],
            tuple(Outcome(**outcome) for outcome in run["outcomes"]),
        )
        for run in document["runs"]
    )
    return Results(document["date"], document["versions"], tuple(runs))
