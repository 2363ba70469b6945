"""What the checks said of each configuration, as docs/field/results.json keeps it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[2] / "docs/field/results.json"


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
    """One configuration's run: the implementation's name, the day, the versions deployed."""

    target: str
    configuration: str
    title: str
    date: str
    versions: Mapping[str, str]
    outcomes: tuple[Outcome, ...]

    @property
    def counts(self) -> Counter[str]:
        """Count the cases by status."""
        return Counter(outcome.status for outcome in self.outcomes)


def read_outcomes(report: Mapping[str, Any]) -> tuple[Outcome, ...]:
    """Read the report of a run of `divvy verify`."""
    return tuple(
        Outcome(
            check["id"],
            check["case"],
            check["status"],
            check.get("missed") or "",
            check.get("reason") or "",
        )
        for check in report["checks"]
    )


def write_results(runs: Sequence[Run], order: Sequence[str]) -> None:
    """Write these runs into the file, instead of earlier ones of the same configurations.

    ``order`` names all configurations: what is none of them is left out.
    """
    earlier = read_results() if RESULTS.exists() else ()
    by_configuration = {run.configuration: run for run in (*earlier, *runs)}
    kept = [by_configuration[name] for name in order if name in by_configuration]
    document = {
        "runs": [
            {
                **asdict(run),
                "outcomes": [
                    {key: text for key, text in asdict(outcome).items() if text}
                    for outcome in run.outcomes
                ],
            }
            for run in kept
        ],
    }
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def read_results() -> tuple[Run, ...]:
    """Read the file."""
    document = json.loads(RESULTS.read_text(encoding="utf-8"))
    return tuple(
        Run(**{**run, "outcomes": tuple(Outcome(**outcome) for outcome in run["outcomes"])})
        for run in document["runs"]
    )
