"""The page about other implementations."""

from __future__ import annotations

from docs.field_page import FINDINGS
from lab.interop.results import read_results


def test_explains_every_failure_and_nothing_else() -> None:
    failed = {
        (run.target, outcome.id)
        for run in read_results()
        for outcome in run.outcomes
        if outcome.status == "failed"
    }
    assert failed == set(FINDINGS)
