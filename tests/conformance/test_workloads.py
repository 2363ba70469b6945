"""The workloads: their PTX assembles for the GPUs it is meant for, and they have patience."""

import re
import subprocess
import sysconfig
from pathlib import Path

import pytest

from conformance.image import compile_workloads
from lab.driver_clients.driver_root import DriverRoot

WORKLOADS = Path(__file__).resolve().parents[2] / "conformance/workloads"
PTXAS = Path(sysconfig.get_path("purelib")) / "nvidia/cuda_nvcc/bin/ptxas"
# From the oldest that the drivers of today know to Blackwell: T4, A100, L40S, H100, B200.
ARCHITECTURES = ("sm_50", "sm_75", "sm_80", "sm_89", "sm_90", "sm_100")


@pytest.mark.parametrize("source", sorted(WORKLOADS.glob("*.ptx")), ids=lambda path: path.stem)
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_assembles_every_workload(source: Path, architecture: str, tmp_path: Path) -> None:
    # Its kernels sleep on simulated GPUs, which needs a later instruction.
    if (source.stem, architecture) == ("time_share", "sm_50"):
        pytest.skip("no GPU so old is measured")
    command = [PTXAS, f"-arch={architecture}", "-o", tmp_path / "out", source]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_has_the_ptx_of_every_program_with_a_kernel() -> None:
    embedded = {
        line.split('"')[1]
        for path in WORKLOADS.glob("*.c")
        for line in path.read_text().splitlines()
        if line.startswith("EMBED_PTX(")
    }
    assert embedded == {path.name for path in WORKLOADS.glob("*.ptx")}


def test_tries_the_numbers_of_every_gpus_mig_devices(tmp_path: Path) -> None:
    """135 capabilities of each GPU: those of the fourth and later ones are beyond 512."""
    compile_workloads(tmp_path)
    done = subprocess.run([tmp_path / "open-devices"], capture_output=True, text=True, check=True)
    tried = re.search(r"^tried (\d+) numbers", done.stdout, re.MULTILINE)
    assert tried is not None
    assert int(tried[1]) % (3 + 32 * 135) == 0, done.stdout


def burnt(driver: DriverRoot, seconds: int) -> subprocess.CompletedProcess[str]:
    """Burn the GPUs of a driver root with the program that the image has."""
    compile_workloads(built := driver.root / "workloads")
    environment = {"LD_LIBRARY_PATH": str(driver.library(""))}
    command = [built / "gpu-burn", "-m", "16", "-stts", "1", str(seconds)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=60, check=False
    )


def test_gives_a_slow_gpu_time_for_its_first_round(driver: DriverRoot) -> None:
    """Many burns on a busy machine have computed nothing when their time is over."""
    driver.install("T4", 1)
    driver.sim("fault", "slow", "0", "300")
    done = burnt(driver, 1)
    assert (done.returncode, "GPU 0: OK" in done.stdout) == (0, True), done.stdout + done.stderr
    driver.sim("fault", "clear", "0")
    driver.sim("fault", "bad-math", "0")
    done = burnt(driver, 1)
    assert (done.returncode, "GPU 0: FAULTY" in done.stdout) == (1, True), done.stdout
