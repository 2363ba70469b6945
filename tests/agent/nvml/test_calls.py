"""What the driver's answers are read as."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from divvy.agent.nvml import calls


def answer(monkeypatch: pytest.MonkeyPatch, *samples: tuple[int, float, int]) -> None:
    """Let the driver return samples: PID, seconds ago, per cent."""
    now = time.time()

    def listed(_handle: Any, _since: int) -> list[Any]:
        return [
            SimpleNamespace(pid=pid, timeStamp=int((now - ago) * 1e6), smUtil=percent)
            for pid, ago, percent in samples
        ]

    monkeypatch.setattr(calls, "handle", lambda bus_id: bus_id)
    monkeypatch.setattr(calls.nvml, "nvmlDeviceGetProcessUtilization", listed)


def test_takes_the_newest_sample_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, (7, 1, 40), (7, 3, 90), (8, 2, 0))
    assert {use["pid"]: use["percent"] for use in calls.utilisation("0")} == {7: 40, 8: 0}


def test_ignores_samples_of_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers return as many entries as the list has room for, some of them never written."""
    answer(monkeypatch, (0, 1, 40), (7, 60, 40), (9, 1, 4294967295), (8, 1, 100))
    assert calls.utilisation("0") == [{"pid": 8, "percent": 100}]


def test_reads_nothing_where_the_driver_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise calls.nvml.NVMLError(calls.nvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(calls, "handle", lambda bus_id: bus_id)
    monkeypatch.setattr(calls.nvml, "nvmlDeviceGetProcessUtilization", refuse)
    assert calls.utilisation("0") == []
