"""The NVML process: it ends silently with its agent, and gives back what it watches events with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from divvy.agent.driver_root import nvml_library
from divvy.agent.nvml import child as child_module
from lab.fakes.agent import simulate, simulated_driver
from lab.fakes.simulator import needs_simulator

PATIENCE = 60
nvml = child_module.nvml


def child(root: Path, answers: int) -> subprocess.Popen[bytes]:
    """Start it as the agent does; its input stays open."""
    library = nvml_library(root)
    assert library is not None
    return subprocess.Popen(
        [sys.executable, "-m", "divvy.agent.nvml.child", str(library), str(root)],
        stdin=subprocess.PIPE,
        stdout=answers,
        stderr=subprocess.PIPE,
    )


def ended_in_silence(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdin is not None
    assert process.stderr is not None
    try:
        # Its input is open: what it waits for is not that.
        assert process.wait(PATIENCE) == 0
        return process.stderr.read() == b""
    finally:
        process.kill()
        process.stdin.close()
        process.stderr.close()


def ask(process: subprocess.Popen[bytes], call: str, **args: str) -> None:
    assert process.stdin is not None
    request = {"id": 1, "call": call, "lane": "a", "args": args}
    process.stdin.write(json.dumps(request).encode() + b"\n")
    process.stdin.flush()


@needs_simulator
@pytest.mark.parametrize("when", ["before it is ready", "before an answer", "before an event"])
async def test_ends_an_nvml_process_silently_after_its_agent(when: str) -> None:
    async with simulated_driver(1) as folder:
        reading, writing = os.pipe()
        answers = os.fdopen(reading, "rb")
        if when == "before it is ready":
            answers.close()
        process = child(folder / "driver", writing)
        os.close(writing)
        if not answers.closed:
            assert b'"id":0,"ok"' in answers.readline()
            if when == "before an event":
                ask(process, "watch", bus_id="00000000:07:00.0")
                assert b'"watched":true' in answers.readline()
            answers.close()
            if when == "before an event":
                simulate(folder / "driver", "fault", "xid", "0", "48")
            else:
                ask(process, "driver")
        assert ended_in_silence(process)


class Lines:
    """Keeps what would be written to the agent."""

    def __init__(self) -> None:
        self.values: list[dict[str, Any]] = []

    def write(self, value: dict[str, Any]) -> None:
        self.values.append(value)


@pytest.fixture
def sets(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Return the event sets that a driver has which takes no part in watching."""
    sets: set[int] = set()

    def created() -> int:
        sets.add(len(sets))
        return len(sets) - 1

    def refuse(*_: object) -> None:
        raise nvml.NVMLError(nvml.NVML_ERROR_UNKNOWN)

    answers: dict[str, Callable[..., Any]] = {
        "nvmlDeviceGetHandleByPciBusId": str,
        "nvmlDeviceGetSupportedEventTypes": lambda _: nvml.nvmlEventTypeXidCriticalError,
        "nvmlEventSetCreate": created,
        "nvmlEventSetFree": sets.remove,
        "nvmlDeviceRegisterEvents": refuse,
        "nvmlEventSetWait_v2": refuse,
    }
    for name, answer in answers.items():
        monkeypatch.setattr(nvml, name, answer)
    return sets


def test_frees_the_events_of_a_gpu_that_cannot_be_watched(sets: set[int]) -> None:
    """Each look at the GPU tries again, every few seconds for as long as the agent runs."""
    with pytest.raises(nvml.NVMLError):
        child_module._watch("07:00.0", Lines())  # type: ignore[arg-type]
    assert not sets


def test_frees_the_events_of_a_gpu_whose_events_end(sets: set[int]) -> None:
    lines, events = Lines(), nvml.nvmlEventSetCreate()
    child_module._report_events(lines, events, "07:00.0", "GPU-0")  # type: ignore[arg-type]
    assert [line["events_ended"] for line in lines.values] == ["07:00.0"]
    assert not sets
