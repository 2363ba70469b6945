"""The kernels that measure a GPU's time assemble for the GPUs that the kit may meet."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import pytest

PTX = Path(__file__).resolve().parents[2] / "hardware_kit/programs/time_share.ptx"
PTXAS = Path(sysconfig.get_path("purelib")) / "nvidia/cuda_nvcc/bin/ptxas"


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_100"])
def test_assembles_the_time_share_program(architecture: str, tmp_path: Path) -> None:
    command = [PTXAS, f"-arch={architecture}", "-o", tmp_path / "out", PTX]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
