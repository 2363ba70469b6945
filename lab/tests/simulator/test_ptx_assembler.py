"""NVIDIA's own assembler takes the tests' PTX: the table's kernels and the files in ptx/."""

import subprocess
import sysconfig
from pathlib import Path

from lab.driver_clients.ptx_modules import FILES
from lab.tests.simulator.ptx_instruction_kernels import HALVES, KERNELS

PTXAS = Path(sysconfig.get_path("purelib")) / "nvidia/cuda_nvcc/bin/ptxas"


def assembles(text: str, tmp_path: Path, architecture: str = "sm_80") -> None:
    """Check that the assembler takes a text."""
    source = tmp_path / "test.ptx"
    source.write_text(text)
    command = [str(PTXAS), f"-arch={architecture}", str(source), "-o", str(tmp_path / "test.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_assembles_all_test_ptx(tmp_path):
    assembles(KERNELS, tmp_path)
    assembles(HALVES, tmp_path, "sm_90")
    for source in FILES:
        text = source.read_text()
        assembles(text, tmp_path, "sm_90" if "sm_90" in text else "sm_80")
