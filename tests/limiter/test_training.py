"""A framework that is not ours, tinygrad, trains on shares: within them, and side by side."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.image import lay_tinygrad
from lab.driver_clients.driver_root import DriverRoot
from tests.limiter.conftest import Tenants
from tests.limiter.tenant import Tenant

# As long as all other tests of the limiter together, so not among those for a moment between.
pytestmark = pytest.mark.lab
TRAIN = Path(__file__).parents[2] / "conformance/workloads/train.py"
_PATIENCE = 300  # a hang, not a slow machine


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give that part of tinygrad which the workloads' image has."""
    folder = tmp_path_factory.mktemp("training")
    lay_tinygrad(folder)
    return folder


def start(library: Path, tenant: Tenant, *arguments: str) -> subprocess.Popen[str]:
    """Start the training with a tenant's libraries and its nvidia-smi, and no other packages."""
    process = subprocess.Popen(
        [sys.executable, "-S", str(TRAIN), *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": str(library),
            "LD_LIBRARY_PATH": str(tenant.library("")),
            "PATH": f"{tenant.root / 'usr/bin'}:{os.environ['PATH']}",
        },
    )
    tenant.processes.append(process)
    return process


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Wait for the end; return the exit code and what was said."""
    out, errors = process.communicate(timeout=_PATIENCE)
    return process.returncode, out + errors


def test_trains_two_tenants_side_by_side_within_their_shares(
    tenants: Tenants, library: Path
) -> None:
    sizes = (1000, 3000)
    shares = [tenants(mib, compute="share", weight=mib // 100) for mib in sizes]
    trainings = [
        start(library, share, f"--ask={mib}") for share, mib in zip(shares, sizes, strict=True)
    ]
    for mib, (code, log) in zip(sizes, [ended(training) for training in trainings], strict=True):
        assert code == 0, log
        first, last = map(float, re.findall(r"^loss (\S+) -> (\S+) in \d+ steps$", log, re.M)[0])
        assert last < first / 10
        assert "the same again: equal" in log
        # What CUDA tells, and what nvidia-smi beside it shows, is the share.
        used, total = map(int, re.findall(r"^memory (\d+) of (\d+) MiB$", log, re.M)[0])
        assert total == mib
        assert 0 < used <= mib
        assert re.search(rf"(\d+)MiB\s*/\s*{mib}MiB", log), log
        # A framework's own error, from the driver's.
        assert f"{mib} MiB more: refused" in log
    assert all(share.figures.refused[0] > 0 for share in shares)


@pytest.mark.usefixtures("administrator")
def test_finds_a_gpu_that_computes_wrong(
    driver: DriverRoot, tenants: Tenants, library: Path
) -> None:
    driver.sim("fault", "bad-math", "0")
    code, log = ended(start(library, tenants(1000)))
    assert code == 1
    assert re.search(r"^the same again: differs from step \d+ on$", log, re.M), log


def test_packs_only_tinygrads_cuda_parts_and_its_licence(library: Path) -> None:
    paths = {path.relative_to(library).as_posix() for path in library.rglob("*.*")}
    assert "tinygrad/runtime/autogen/cuda.py" in paths
    assert not any("amd" in name for name in paths if name.startswith("tinygrad/runtime/autogen/"))
    assert [path.name for path in library.rglob("LICENSE")] == ["LICENSE"]
    # What programs that have imported it meanwhile compiled is beside it.
    packed = (path for path in library.rglob("*") if "__pycache__" not in path.parts)
    assert sum(path.stat().st_size for path in packed) < 4 << 20
