"""A reset is nvidia-smi's, and ends with the agent that asked for it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from time import monotonic, sleep

import pytest

from divvy.agent.nvml.process import DriverProblem
from divvy.agent.nvml.reset import reset_gpu
from lab.driver_clients.driver_root import runs

PATIENCE = 60
AGENT = """
import asyncio, sys
from pathlib import Path
from divvy.agent.nvml.reset import reset_gpu
asyncio.run(reset_gpu(Path(sys.argv[1]), "GPU-1"))
"""


def nvidia_smi(root: Path, script: str) -> None:
    """Put a program in nvidia-smi's place."""
    program = root / "usr/bin/nvidia-smi"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_resets_one_gpu(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, f'echo "$@" > {tmp_path}/arguments')
    asyncio.run(reset_gpu(tmp_path, "GPU-1"))
    assert (tmp_path / "arguments").read_text() == "--gpu-reset -i GPU-1\n"


def test_reports_what_nvidia_smi_says(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, "echo GPU is in use; exit 19")
    with pytest.raises(DriverProblem, match="^reset of GPU-1 failed: GPU is in use$"):
        asyncio.run(reset_gpu(tmp_path, "GPU-1"))


def test_reports_invalid_utf_8_and_a_silent_end(tmp_path: Path) -> None:
    nvidia_smi(tmp_path, r"printf 'GPU \377 is in use\n'; exit 19")
    with pytest.raises(DriverProblem, match="^reset of GPU-1 failed: GPU \ufffd is in use$"):
        asyncio.run(reset_gpu(tmp_path, "GPU-1"))
    (tmp_path / "usr/bin/nvidia-smi").write_text("#!/bin/sh\nkill -9 $$\n")
    with pytest.raises(DriverProblem, match="^reset of GPU-1 failed: nvidia-smi ended with -9$"):
        asyncio.run(reset_gpu(tmp_path, "GPU-1"))


def test_reports_a_missing_nvidia_smi(tmp_path: Path) -> None:
    missing = f"reset of GPU-1 failed: {tmp_path}/usr/bin/nvidia-smi: No such file or directory"
    with pytest.raises(DriverProblem, match=f"^{missing}$"):
        asyncio.run(reset_gpu(tmp_path, "GPU-1"))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_ends_nvidia_smi_when_the_agent_is_killed(tmp_path: Path, how: signal.Signals) -> None:
    # The walk of a node, seed 8104: two kills and a boot later, the reset of an agent long gone
    # destroyed a MIG device that a pod held.
    started, done = tmp_path / "begun", tmp_path / "done"
    nvidia_smi(
        tmp_path, f"echo $$ > {started}.new; mv {started}.new {started}; sleep 2; touch {done}"
    )
    with subprocess.Popen([sys.executable, "-c", AGENT, str(tmp_path)]) as agent:
        end = monotonic() + PATIENCE
        while not started.exists():
            assert monotonic() < end
            sleep(0.02)
        os.kill(agent.pid, how)
    pid = int(started.read_text())
    while runs(pid):
        assert monotonic() < end
        sleep(0.02)
    sleep(2.5)  # it would be done by now
    assert not done.exists()
