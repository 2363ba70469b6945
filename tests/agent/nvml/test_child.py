"""The NVML process of an agent that was killed ends, and says nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from divvy.agent.driver_libraries import nvml_library
from tests.fakes.agent import simulate, simulated_driver
from tests.fakes.simulator import needs_simulator

pytestmark = needs_simulator
PATIENCE = 60


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
