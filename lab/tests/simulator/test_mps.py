"""The control daemon of MPS, version 2 of its protocol: clients, limits, users, ends."""

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from divvy.model.gpu_models import gpu_model
from lab.driver_clients.cuda_process import run
from lab.driver_clients.driver_root import OTHER_VERSION, DriverRoot, eventually
from lab.driver_clients.mps_daemons import NOBODY, Mps, Start, ask, first_line, mps_daemons

DEVICE_UNAVAILABLE, OUT_OF_MEMORY = "46\n", "2\n"
ILLEGAL_ADDRESS = "700\n"
CONNECTION_FAILED, RPC_FAILURE, MAX_CLIENTS, TERMINATED = "805\n", "806\n", "808\n", "810\n"
SMS_OF_AN_A100 = 108
pytestmark = pytest.mark.usefixtures("administrator")


@pytest.fixture
def start(binaries: Path) -> Iterator[Start]:
    """Return a function that starts a daemon: `start("-multiuser-server", gpus=2)`."""
    with mps_daemons(binaries) as make:
        yield make


def test_serves_in_every_version_of_the_driver(start: Start) -> None:
    assert first_line(start(version=OTHER_VERSION).hold(1)) == "0\n"


def test_admits_only_clients_to_an_exclusive_gpu(start: Start) -> None:
    mps = start("-multiuser-server")
    mps.driver.smi("-c", "EXCLUSIVE_PROCESS")
    first, second = mps.hold(10), mps.hold(10)
    assert first_line(first) == first_line(second) == "0\n"
    assert first_line(mps.driver.hold(1)) == DEVICE_UNAVAILABLE
    listed = mps.say(f"get_client_list {mps.server}").split()
    assert sorted(listed) == sorted(map(str, (first.pid, second.pid)))
    assert mps.say(f"get_server_status {mps.server}") == "ACTIVE"
    shown = mps.say("get_device_client_list").split()
    assert shown[0].startswith("GPU-")
    assert set(shown[1:]) == {str(first.pid), str(second.pid)}


def test_keeps_the_server_off_an_exclusive_gpu_that_a_process_uses(start: Start) -> None:
    mps = start()
    outside = mps.driver.hold(1)
    assert first_line(outside) == "0\n"
    mps.driver.smi("-c", "EXCLUSIVE_PROCESS")
    assert first_line(mps.hold(1)) == CONNECTION_FAILED
    assert mps.server == ""


def test_computes_without_a_daemon_as_ever(install: Callable[..., DriverRoot]) -> None:
    driver = install()
    assert first_line(driver.hold(1, CUDA_MPS_PIPE_DIRECTORY="/nowhere")) == "0\n"


def test_refuses_the_49th_client(start: Start) -> None:
    mps = start("-multiuser-server")
    holders = [mps.hold(1) for _ in range(48)]
    assert [first_line(holder) for holder in holders] == ["0\n"] * 48
    assert first_line(mps.hold(1)) == MAX_CLIENTS
    holders[0].kill()
    assert eventually(lambda: len(mps.say(f"get_client_list {mps.server}").split()) == 47)
    assert first_line(mps.hold(1)) == "0\n"


def test_refuses_the_17th_client_before_volta(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pascal = replace(gpu_model("V100-SXM2-16GB"), compute_capability=(6, 0))
    monkeypatch.setattr("lab.driver_clients.driver_root.gpu_model", lambda _: pascal)
    mps = start("-multiuser-server")
    holders = [mps.hold(1) for _ in range(16)]
    assert [first_line(holder) for holder in holders] == ["0\n"] * 16
    assert first_line(mps.hold(1)) == MAX_CLIENTS


def test_applies_the_pinned_limit_to_each_process_and_what_is_free(start: Start) -> None:
    mps = start("-multiuser-server")
    limit = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=1G"}
    assert first_line(mps.hold(1025, **limit)) == OUT_OF_MEMORY
    # As users report: a container of two processes gets twice its limit.
    first, second = mps.hold(1024, **limit), mps.hold(1024, **limit)
    assert first_line(first) == first_line(second) == "0\n"
    assert ask(first, "init") == OUT_OF_MEMORY
    asked = (
        "import ctypes; cuda.context(); unused, total = ctypes.c_size_t(), ctypes.c_size_t()\n"
        "cuda.call('cuMemGetInfo_v2', ctypes.byref(unused), ctypes.byref(total))\n"
        "print(unused.value, total.value)"
    )
    unused, total = run(mps.driver, asked, **mps.environment, **limit).split()
    assert int(unused) == 1 << 30
    assert int(total) > 39 << 30


def test_refuses_a_client_to_raise_the_daemons_limit(start: Start) -> None:
    mps = start("-multiuser-server")
    assert mps.say("get_default_device_pinned_mem_limit 0") == "The device memory limit is not set"
    mps.say("set_default_device_pinned_mem_limit 0 512M")
    assert mps.say("get_default_device_pinned_mem_limit 0") == "512M"
    more = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=20G"}
    assert first_line(mps.hold(513, **more)) == OUT_OF_MEMORY
    assert first_line(mps.hold(512, **more)) == "0\n"


def test_lifts_the_limits_of_a_client_that_names_a_gpu_it_does_not_have(start: Start) -> None:
    """Measured by NVIDIA: a client can drop the daemon's memory limit, too."""
    mps = start("-multiuser-server")
    mps.say("set_default_device_pinned_mem_limit 0 512M")
    lifted = {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=512M,1=512M"}
    assert first_line(mps.hold(20000, **lifted)) == "0\n"


@pytest.mark.parametrize(("percentage", "sms"), [("25", 26), ("10", 10), ("1", 2), ("100", 108)])
def test_shows_a_share_of_the_threads_as_fewer_sms(start: Start, percentage: str, sms: int) -> None:
    mps = start("-multiuser-server")
    threads = {"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": percentage}
    assert run(mps.driver, "print(cuda.attribute(16))", **mps.environment, **threads) == str(sms)


def test_applies_default_threads_to_the_next_server(start: Start) -> None:
    mps = start("-multiuser-server")
    holder = mps.hold(1)
    assert first_line(holder) == "0\n"
    assert mps.say("set_default_active_thread_percentage 50") == "50.0"
    seen = "print(cuda.attribute(16))"
    assert run(mps.driver, seen, **mps.environment) == str(SMS_OF_AN_A100)
    mps.say(f"set_active_thread_percentage {mps.server} 50")
    assert run(mps.driver, seen, **mps.environment) == str(SMS_OF_AN_A100 // 2)


def test_queues_another_user_until_the_server_has_no_clients(start: Start) -> None:
    mps = start()
    first = mps.hold(1)
    assert first_line(first) == "0\n"
    other = mps.hold_as_another_user()
    before = mps.server
    assert not eventually(lambda: mps.server != before, 0.5)
    first.kill()
    assert first_line(other) == "0\n"
    assert mps.server != before


def test_admits_every_user_at_once_on_a_multiuser_server(start: Start) -> None:
    mps = start("-multiuser-server")
    first = mps.hold(1)
    assert first_line(first) == "0\n"
    other = mps.hold_as_another_user()
    assert first_line(other) == "0\n"


def test_allows_any_user_to_read_and_only_root_to_command(start: Start) -> None:
    mps = start("-multiuser-server")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in mps.pipes.iterdir()}
    assert modes["control"] == 0o666
    assert modes["control_privileged"] == 0o600
    holder = mps.hold(1)
    assert first_line(holder) == "0\n"
    assert mps.say(f"get_client_list {mps.server}", user=NOBODY) == str(holder.pid)
    assert mps.say("quit -t 0", rc=1, user=NOBODY) == "Permission denied"
    assert mps.daemon.poll() is None


def test_fails_only_the_terminated_client(start: Start) -> None:
    mps = start("-multiuser-server")
    first, second = mps.hold(1), mps.hold(1)
    assert first_line(first) == first_line(second) == "0\n"
    mps.say(f"terminate_client {mps.server} {first.pid}")
    assert ask(first, "init") == TERMINATED
    assert ask(second, "init") == "0\n"
    mps.say(f"terminate_client {mps.server} 1", rc=1)


def working(mps: Mps) -> subprocess.Popen[str]:
    """Start a client with a minute's work in flight."""
    script = (
        "import sys; from pathlib import Path; from lab.driver_clients.cuda import Cuda\n"
        "from lab.driver_clients.sleeper import Sleeper\n"
        "cuda = Cuda(Path(sys.argv[1])).init(); cuda.context()\n"
        "Sleeper(cuda).start(60_000_000_000); print('0', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(mps.driver.library("libcuda.so.1"))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **mps.environment},
    )
    mps.driver.processes.append(process)
    assert first_line(process) == "0\n"
    return process


def test_wedges_the_server_of_a_client_killed_with_work_in_flight(start: Start) -> None:
    mps = start("-multiuser-server")
    mps.driver.sim("fault", "mps-wedge", "0")
    neighbour, worker = mps.hold(1), working(mps)
    assert first_line(neighbour) == "0\n"
    worker.kill()
    worker.wait()
    assert eventually(lambda: ask(neighbour, "init") == ILLEGAL_ADDRESS)
    late = mps.hold(1)
    assert late.stdout is not None
    assert not select.select([late.stdout], [], [], 0.5)[0]
    assert mps.say(f"get_server_status {mps.server}") == "ACTIVE"
    os.kill(int(mps.server), signal.SIGKILL)
    assert first_line(late) == "0\n"


@pytest.mark.parametrize("fault", ["mps-wedge", ""])
def test_spares_the_others_when_a_client_is_terminated_before_its_kill(
    start: Start, fault: str
) -> None:
    mps = start("-multiuser-server")
    neighbour, worker = mps.hold(1), working(mps)
    assert first_line(neighbour) == "0\n"
    if fault:
        mps.driver.sim("fault", fault, "0")
        mps.say(f"terminate_client {mps.server} {worker.pid}")
    worker.kill()
    worker.wait()
    assert eventually(lambda: len(mps.say(f"get_client_list {mps.server}").split()) == 1)
    assert ask(neighbour, "init") == "0\n"
    assert first_line(mps.hold(1)) == "0\n"


@pytest.mark.parametrize("victim", ["server", "daemon"])
def test_fails_the_clients_of_a_dead_server_for_good(start: Start, victim: str) -> None:
    mps = start("-multiuser-server")
    holder = mps.hold(1)
    assert first_line(holder) == "0\n"
    server = int(mps.server)
    os.kill(server if victim == "server" else mps.daemon.pid, signal.SIGKILL)
    assert eventually(lambda: ask(holder, "init") == RPC_FAILURE)
    if victim == "server":
        assert first_line(mps.hold(1)) == "0\n"
    else:
        mps.daemon.wait()
        assert mps.say("get_server_list", rc=1) == "Cannot find MPS control daemon process"
        assert eventually(lambda: not Path(f"/proc/{server}").exists())


def test_waits_for_clients_on_quit_as_long_as_told(start: Start) -> None:
    mps = start("-multiuser-server")
    holder = mps.hold(1)
    assert first_line(holder) == "0\n"
    mps.say("quit")
    assert not eventually(lambda: mps.daemon.poll() is not None, 0.3)
    mps.say("quit -t 0")
    assert eventually(lambda: mps.daemon.poll() == 0)
    assert eventually(lambda: ask(holder, "init") == RPC_FAILURE)


def test_starts_no_server_of_a_driver_that_has_been_replaced(start: Start) -> None:
    mps = start("-multiuser-server")
    mps.driver.sim("driver", OTHER_VERSION)
    assert first_line(mps.hold(1)) == CONNECTION_FAILED
    assert mps.say("get_server_list") == ""


def test_refuses_a_second_daemon_in_a_folder(start: Start) -> None:
    mps = start()
    program = [str(mps.driver.root / "usr/bin/nvidia-cuda-mps-control"), "-d"]
    second = subprocess.run(
        program,
        env={**os.environ, **mps.environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert second.returncode == 1
    assert "An instance of this daemon is already running" in second.stderr
    assert mps.say("get_default_active_thread_percentage") == "100.0"


def test_refuses_a_folder_longer_than_a_sockets_address(
    install: Callable[..., DriverRoot], tmp_path: Path
) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    done = subprocess.run(
        [str(install().root / "usr/bin/nvidia-cuda-mps-control"), "-d"],
        env={
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": str(deep),
            "CUDA_MPS_LOG_DIRECTORY": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "too long for a socket" in done.stderr


def test_shows_a_client_only_the_daemons_gpu(start: Start) -> None:
    mps = start("-multiuser-server", gpus=2, visible="1")
    uuids = mps.driver.smi("--query-gpu=uuid", "--format=csv,noheader").split()
    assert mps.say("get_device_client_list").split() == [uuids[1]]
    seen = run(mps.driver, "print(count())", **mps.environment)
    assert seen == "1"


def test_starts_no_daemon_on_a_gpu_in_mig_mode(
    install: Callable[..., DriverRoot], tmp_path: Path
) -> None:
    driver = install()
    driver.smi("-mig", "1")
    driver.smi("--gpu-reset")
    done = subprocess.run(
        [str(driver.root / "usr/bin/nvidia-cuda-mps-control"), "-f"],
        env={
            **os.environ,
            "CUDA_MPS_PIPE_DIRECTORY": "/tmp/divvy-mps-mig",
            "CUDA_MPS_LOG_DIRECTORY": str(tmp_path),
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=10,
    )
    shutil.rmtree("/tmp/divvy-mps-mig", ignore_errors=True)
    assert done.returncode == 1
    assert "No CUDA-capable device is available to MPS" in done.stderr


def test_lists_clients_apart_from_the_server_in_nvml(start: Start) -> None:
    mps = start("-multiuser-server")
    holder = mps.hold(5)
    assert first_line(holder) == "0\n"
    mps.driver.nvml()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    of_mps = pynvml.nvmlDeviceGetMPSComputeRunningProcesses(gpu)
    assert [(of_mp.pid, of_mp.usedGpuMemory >> 20) for of_mp in of_mps] == [(holder.pid, 5)]
    others = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    assert [other.pid for other in others] == [int(mps.server)]
    pynvml.nvmlShutdown()
