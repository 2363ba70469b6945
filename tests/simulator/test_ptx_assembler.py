"""NVIDIA's own assembler takes the tests' PTX: the table's kernels and the files in ptx/."""

import subprocess
import sysconfig
from pathlib import Path

from tests.simulator.ptx_instruction_kernels import KERNELS
from tests.simulator.ptx_modules import FILES

PTXAS = Path(sysconfig.get_path("purelib")) / "nvidia/cuda_nvcc/bin/ptxas"


def assembles(text: str, tmp_path: Path) -> None:
    """Check that the assembler takes a text."""
    source = tmp_path / "test.ptx"
    source.write_text(text)
    command = [str(PTXAS), "-arch=sm_80", str(source), "-o", str(tmp_path / "test.cubin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_all_test_ptx_assembles(tmp_path):
    assembles(KERNELS, tmp_path)
    for source in FILES:
        assembles(source.read_text(), tmp_path)
