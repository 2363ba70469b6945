"""What is kept of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from field import results
from field.results import read_results, run_of, write_results

REPORT = {
    "checks": [
        {"id": "ISO-09", "case": "n:nvidia.com/gpu", "status": "failed", "reason": "writable"},
        {"id": "OBS-01", "case": "n", "status": "skipped", "missed": "not applicable"},
        {"id": "ISO-01", "case": "n", "status": "passed", "seconds": 1.0},
    ]
}


def test_reads_back_written_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "RESULTS", tmp_path / "field/results.json")
    run = run_of("nvidia-dra", "dra-whole", "whole GPUs", REPORT)
    assert run.counts == {"failed": 1, "skipped": 1, "passed": 1}
    write_results("2026-01-31", {"Kubernetes": "v1.36.3"}, [run])
    kept = read_results()
    assert kept.runs == (run,)
    assert (kept.date, kept.versions) == ("2026-01-31", {"Kubernetes": "v1.36.3"})
