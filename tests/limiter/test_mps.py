"""Prevention on top of MPS: what MPS limits of a process, the limiter limits of a container."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.driver_clients.driver_root import DriverRoot, eventually
from lab.fakes.simulator import needs_root
from tests.limiter.conftest import Tenants
from tests.limiter.tenant import line, tell

SMS_OF_A_T4, DEVICE_UNAVAILABLE = 40, "46"
PROGRAM = """
held = []
print(cuda.attribute(16), flush=True)
for size in sys.stdin:
    print(tried(lambda: held.append(cuda.allocate(int(size) * MIB))), flush=True)
"""
pytestmark = needs_root


def taken(process: subprocess.Popen[str], mib: int) -> int:
    """Have a program allocate so much and return its error, 0 without one."""
    tell(process, str(mib))
    return int(line(process))


@pytest.fixture
def client(driver: DriverRoot, tmp_path: Path) -> Iterator[dict[str, str]]:
    """Start the daemon of the first GPU and return the environment of its clients."""
    driver.smi("-i", "0", "-c", "EXCLUSIVE_PROCESS")
    folders = {
        "CUDA_MPS_PIPE_DIRECTORY": str(tmp_path / "pipe"),
        "CUDA_MPS_LOG_DIRECTORY": str(tmp_path / "log"),
    }
    daemon = subprocess.Popen(
        [str(driver.root / "usr/bin/nvidia-cuda-mps-control"), "-f", "-multiuser-server"],
        env={**os.environ, **folders, "CUDA_VISIBLE_DEVICES": "0"},
    )
    assert eventually((tmp_path / "pipe/nvidia-cuda-mps-control.pid").exists)
    yield {
        **folders,
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=800M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "25",
    }
    daemon.kill()
    daemon.wait()


def test_counts_a_container_whose_processes_mps_limits(
    tenants: Tenants, client: dict[str, str]
) -> None:
    tenant = tenants(1024)
    first, second = (tenant.start(PROGRAM, **client) for _ in range(2))
    assert line(first) == line(second) == str(SMS_OF_A_T4 // 4)
    assert taken(first, 700) == 0
    # MPS refuses the process, and the limiter counts nothing for it.
    assert taken(first, 200) == 2
    assert tenant.figures.refused[0] == 0
    # The limiter refuses the container: of this process MPS allows more.
    assert taken(second, 400) == 2
    assert tenant.figures.refused[0] == 1
    assert taken(second, 300) == 0
    outside = tenant.run("cuda.init(); print(tried(cuda.context))", context=False)
    assert outside == DEVICE_UNAVAILABLE


def test_shows_a_container_no_clients_of_others(tenants: Tenants, client: dict[str, str]) -> None:
    tenant = tenants(1024)
    theirs, mine = tenants(1024).start(PROGRAM, **client), tenant.start(PROGRAM, **client)
    assert [line(theirs), line(mine)] == [str(SMS_OF_A_T4 // 4)] * 2
    assert [taken(theirs, 100), taken(mine, 200)] == [0, 0]
    script = """
nvml = c.CDLL(str(Path(sys.argv[1]).with_name('libnvidia-ml.so.1')))
device, infos = c.c_void_p(), (c.c_uint64 * 64)()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, c.byref(device))
for kind in ('Compute', 'MPSCompute'):
    for version in ('', '_v2', '_v3'):
        count = c.c_uint(16)
        list_of = getattr(nvml, f'nvmlDeviceGet{kind}RunningProcesses{version}')
        print(list_of(device, c.byref(count), infos), count.value, infos[0] & 0xffffffff)
        infos[0] = 0
"""
    listed = tenant.run(script, context=False).splitlines()
    # Each of its own once, whether it is a client of MPS or not.
    assert listed == [f"0 1 {mine.pid}"] * 3 + ["0 0 0"] * 3
