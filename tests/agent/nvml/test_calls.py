"""What the driver's answers are read as."""

from __future__ import annotations

import time
from pathlib import Path
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


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Let the driver answer with values or errors, and say of nothing else that it is supported."""
    given: dict[str, Any] = {}

    def answered(name: str) -> Any:
        answer = given.get(name, calls.nvml.NVMLError(calls.nvml.NVML_ERROR_NOT_SUPPORTED))
        if isinstance(answer, Exception):
            raise answer
        return answer

    for name in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetNumaNodeId"):
        monkeypatch.setattr(calls.nvml, name, lambda _handle, name=name: answered(name))
    monkeypatch.setattr(calls, "simulated", lambda: True)
    return given


def test_reads_the_nodes_memory_of_a_gpu_without_its_own(
    answers: dict[str, Any], tmp_path: Path
) -> None:
    assert answers == {}
    (tmp_path / "proc").mkdir()
    # Of a DGX Spark.
    text = "MemTotal:       127600748 kB\nMemFree:        118566368 kB\n"
    (tmp_path / "proc/meminfo").write_text(text)
    memory = calls._memory(None, tmp_path)
    assert memory["memory_mib"] == 124610
    assert "the node's" in memory["memory_problem"]


def test_tells_memory_that_is_a_numa_node_of_the_system(
    answers: dict[str, Any], tmp_path: Path
) -> None:
    answers["nvmlDeviceGetMemoryInfo"] = SimpleNamespace(total=97871 << 20)
    assert calls._memory(None, tmp_path) == {"memory_mib": 97871}
    answers["nvmlDeviceGetNumaNodeId"] = 9
    memory = calls._memory(None, tmp_path)
    assert memory["memory_mib"] == 97871
    assert "NUMA node 9" in memory["memory_problem"]
    assert "NVreg_CoherentGPUMemoryMode=driver" in memory["memory_problem"]


@pytest.mark.parametrize("node", [0, -1])
def test_takes_a_node_with_processors_for_the_nearest_one_and_not_for_the_gpus_memory(
    answers: dict[str, Any], tmp_path: Path, node: int
) -> None:
    """Programs of others meet answers of both kinds: else no node would offer a limited share."""
    processors = tmp_path / "sys/devices/system/node/node0/cpulist"
    processors.parent.mkdir(parents=True)
    processors.write_text("0-71\n")
    answers["nvmlDeviceGetMemoryInfo"] = SimpleNamespace(total=81920 << 20)
    answers["nvmlDeviceGetNumaNodeId"] = node
    assert calls._memory(None, tmp_path) == {"memory_mib": 81920}
    processors.write_text("\n")
    answers["nvmlDeviceGetNumaNodeId"] = 0
    assert "NUMA node 0" in calls._memory(None, tmp_path)["memory_problem"]


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "UNKNOWN", "TIMEOUT"])
def test_takes_no_failure_for_memory_of_its_own(
    answers: dict[str, Any], tmp_path: Path, error: str
) -> None:
    answers["nvmlDeviceGetMemoryInfo"] = SimpleNamespace(total=97871 << 20)
    answers["nvmlDeviceGetNumaNodeId"] = calls.nvml.NVMLError(
        getattr(calls.nvml, f"NVML_ERROR_{error}")
    )
    problem = calls._memory(None, tmp_path).get("memory_problem", "")
    assert bool(problem) == (error in ("UNKNOWN", "TIMEOUT"))


def test_tells_no_figure_of_a_process_that_the_driver_does_not_tell(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """NVML_VALUE_NOT_AVAILABLE, which is None here, is not 0."""

    def listed(*processes: tuple[int, int | None]) -> Any:
        return lambda _handle: [
            SimpleNamespace(pid=pid, gpuInstanceId=None, usedGpuMemory=used)
            for pid, used in processes
        ]

    monkeypatch.setattr(calls, "handle", lambda bus_id: bus_id)
    monkeypatch.setattr(
        calls.nvml, "nvmlDeviceGetComputeRunningProcesses", listed((1, None), (2, 5 << 20))
    )
    monkeypatch.setattr(
        calls.nvml, "nvmlDeviceGetGraphicsRunningProcesses", listed((1, None), (2, None))
    )
    monkeypatch.setattr(calls.nvml, "nvmlDeviceGetMPSComputeRunningProcesses", listed())
    assert {use["pid"]: use["used_mib"] for use in calls.processes("0")} == {1: None, 2: 5}


def test_passes_on_other_errors_of_the_memory(answers: dict[str, Any], tmp_path: Path) -> None:
    answers["nvmlDeviceGetMemoryInfo"] = calls.nvml.NVMLError(calls.nvml.NVML_ERROR_GPU_IS_LOST)
    with pytest.raises(calls.nvml.NVMLError):
        calls._memory(None, tmp_path)


def test_takes_the_newest_sample_of_each_process(monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, (7, 1, 40), (7, 3, 90), (8, 2, 0))
    assert {use["pid"]: use["percent"] for use in calls.utilisation("0")} == {7: 40, 8: 0}


def test_ignores_samples_of_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drivers return as many entries as the list has room for, some of them never written."""
    answer(monkeypatch, (0, 1, 40), (7, 60, 40), (9, 1, 4294967295), (8, 1, 100))
    assert calls.utilisation("0") == [{"pid": 8, "percent": 100}]


def test_tells_a_driver_that_counts_nothing_from_processes_that_compute_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    errors = [calls.nvml.NVML_ERROR_NOT_SUPPORTED, calls.nvml.NVML_ERROR_NOT_FOUND]

    def refuse(*_: Any) -> None:
        raise calls.nvml.NVMLError(errors.pop(0))

    monkeypatch.setattr(calls, "handle", lambda bus_id: bus_id)
    monkeypatch.setattr(calls.nvml, "nvmlDeviceGetProcessUtilization", refuse)
    assert calls.utilisation("0") is None
    assert calls.utilisation("0") == []
