"""GPU time that kernels take: launches return, synchronisation waits, processes share it."""

import ctypes as c
import subprocess
import sys
from time import monotonic, sleep, time

import pynvml
import pytest

from lab.driver_clients.sleeper import Sleeper

NOT_READY = 600
MS = 1_000_000


def test_returns_from_a_launch_at_once_and_waits_in_a_synchronisation(gpu):
    sleeper, event = Sleeper(gpu), c.c_void_p()
    gpu.call("cuEventCreate", c.byref(event), c.c_uint(0))
    begin = monotonic()
    for _ in range(3):
        sleeper.start(50 * MS)
    gpu.call("cuEventRecord", event, None)
    assert monotonic() - begin < 0.1
    assert gpu.code("cuStreamQuery", None) == NOT_READY
    assert gpu.code("cuEventQuery", event) == NOT_READY
    gpu.call("cuCtxSynchronize")
    assert 0.15 <= monotonic() - begin < 0.25
    gpu.call("cuEventQuery", event)


def test_completes_an_event_after_what_is_before_it(gpu):
    sleeper, early, late, between = Sleeper(gpu), c.c_void_p(), c.c_void_p(), c.c_float()
    for event in (early, late):
        gpu.call("cuEventCreate", c.byref(event), c.c_uint(0))
    begin = monotonic()
    sleeper.start(30 * MS)
    gpu.call("cuEventRecord", early, None)
    # Long enough that a busy machine is back from the first wait before the second work ends.
    sleeper.start(1000 * MS)
    gpu.call("cuEventRecord", late, None)
    gpu.call("cuEventSynchronize", early)
    assert 0.03 <= monotonic() - begin < 1
    gpu.call("cuEventSynchronize", late)
    gpu.call("cuEventElapsedTime", c.byref(between), early, late)
    assert between.value > 900


def test_waits_in_a_copy_to_the_host(gpu):
    sleeper, pointer, begin = Sleeper(gpu), gpu.allocate(8), monotonic()
    sleeper.start(40 * MS)
    gpu.download(pointer, 8)
    assert monotonic() - begin >= 0.04


def test_divides_the_time_when_two_processes_share_the_gpu(install):
    driver = install()
    script = (
        "import sys; from pathlib import Path; from time import monotonic\n"
        "from lab.driver_clients.cuda import Cuda; from lab.driver_clients.sleeper import Sleeper\n"
        "cuda = Cuda(Path(sys.argv[1])).init(); cuda.context(); sleeper = Sleeper(cuda)\n"
        "print('ready', flush=True); sys.stdin.readline(); begin = monotonic()\n"
        "sleeper.start(200_000_000); cuda.call('cuCtxSynchronize'); print(monotonic() - begin)\n"
    )
    command = [sys.executable, "-c", script, str(driver.library("libcuda.so.1"))]
    both = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    times = [float(worker.communicate()[0]) for worker in both]
    assert all(0.35 < time < 0.55 for time in times), times


def test_counts_the_time_of_each_process(install):
    driver = install()
    script = (
        "import sys; from pathlib import Path\n"
        "from lab.driver_clients.cuda import Cuda; from lab.driver_clients.sleeper import Sleeper\n"
        "cuda = Cuda(Path(sys.argv[1])).init(); cuda.context(); sleeper = Sleeper(cuda)\n"
        "sleeper.start(int(sys.argv[2])); print('ready', flush=True); sys.stdin.readline()\n"
    )
    driver.nvml()
    gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetProcessUtilization(gpu, 0)
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, str(driver.library("libcuda.so.1")), nanoseconds],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for nanoseconds in ("60000000000", "60000000000", "0")
    ]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    sleep(4)  # the window is a second
    samples = pynvml.nvmlDeviceGetProcessUtilization(gpu, 0)
    busy, idle = processes[:2], processes[2]
    assert idle.pid not in {sample.pid for sample in samples}
    assert {sample.pid for sample in samples} == {process.pid for process in busy}
    assert all(45 <= sample.smUtil <= 55 for sample in samples), [s.smUtil for s in samples]
    assert all(abs(sample.timeStamp / 1e6 - time()) < 60 for sample in samples)
    assert pynvml.nvmlDeviceGetUtilizationRates(gpu).gpu > 90
    with pytest.raises(pynvml.NVMLError_NotFound):
        pynvml.nvmlDeviceGetProcessUtilization(gpu, int((time() + 3600) * 1e6))
    for process in processes:
        process.kill()
        process.communicate()
    pynvml.nvmlShutdown()
