"""The workloads' PTX assembles for the GPUs it is meant for: nothing simulated says that."""

import subprocess
import sysconfig
from pathlib import Path

import pytest

WORKLOADS = Path(__file__).resolve().parents[2] / "conformance/workloads"
PTXAS = Path(sysconfig.get_path("purelib")) / "nvidia/cuda_nvcc/bin/ptxas"
# From the oldest that the drivers of today know to Blackwell: T4, A100, L40S, H100, B200.
ARCHITECTURES = ("sm_50", "sm_75", "sm_80", "sm_89", "sm_90", "sm_100")


@pytest.mark.parametrize("source", sorted(WORKLOADS.glob("*.ptx")), ids=lambda path: path.stem)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_workload_assembles(source: Path, architecture: str, tmp_path: Path) -> None:
    command = [PTXAS, f"-arch={architecture}", "-o", tmp_path / "out", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_program_with_a_kernel_has_its_ptx() -> None:
    embedded = {
        line.split('"')[1]
        for path in WORKLOADS.glob("*.c")
        for line in path.read_text().splitlines()
        if line.startswith("EMBED_PTX(")
    }
    assert embedded == {path.name for path in WORKLOADS.glob("*.ptx")}
