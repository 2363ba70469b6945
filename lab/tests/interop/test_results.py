"""What is kept of runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lab.interop import results
from lab.interop.results import Run, read_outcomes, read_results, write_results

REPORT = {
    "checks": [
        {"id": "ISO-09", "case": "n:nvidia.com/gpu", "status": "failed", "reason": "writable"},
        {"id": "OBS-01", "case": "n", "status": "skipped", "missed": "not applicable"},
        {"id": "ISO-01", "case": "n", "status": "passed", "seconds": 1.0},
    ]
}
WHOLE = Run(
    "nvidia-dra", "dra-whole", "whole GPUs", "2026-01-31", {"Kubernetes": "v1.37.2"},
    read_outcomes(REPORT),
)  # fmt: skip
ORDER = ("dra-whole", "dra-mig")


@pytest.fixture(autouse=True)
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "field/results.json")


def test_reads_back_written_results() -> None:
    assert WHOLE.counts == {"failed": 1, "skipped": 1, "passed": 1}
    write_results([WHOLE], ORDER)
    assert read_results() == (WHOLE,)


def test_replaces_only_runs_of_the_same_configuration() -> None:
    mig = replace(WHOLE, configuration="dra-mig")
    gone = replace(WHOLE, configuration="renamed since")
    write_results([mig, gone, WHOLE], [*ORDER, "renamed since"])
    later = replace(mig, date="2026-02-01")
    write_results([later], ORDER)
    assert read_results() == (WHOLE, later)
