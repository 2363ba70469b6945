"""Contexts: how they are stacked, and which processes may have one."""

import ctypes as c

import pytest

from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import fails
from lab.driver_clients.cuda_process import run
from lab.driver_clients.sleeper import Sleeper


def test_creates_switches_and_destroys_contexts(gpu):
    first = c.c_void_p()
    gpu.call("cuCtxGetCurrent", c.byref(first))
    second = gpu.context()
    pointer = gpu.allocate(1 << 20)
    used = gpu.memory()[0]
    popped = c.c_void_p()
    gpu.call("cuCtxPopCurrent_v2", c.byref(popped))
    assert popped.value == second.value
    gpu.call("cuCtxPushCurrent_v2", second)
    gpu.call("cuCtxDestroy_v2", second)
    current = c.c_void_p()
    gpu.call("cuCtxGetCurrent", c.byref(current))
    assert current.value == first.value
    assert gpu.memory()[0] == used + (1 << 20)
    with fails(codes.INVALID_VALUE):
        gpu.free(pointer)
    with fails(201):
        gpu.call("cuCtxDestroy_v2", second)
    primary = c.c_void_p()
    gpu.call("cuDevicePrimaryCtxRetain", c.byref(primary), 0)
    again = c.c_void_p()
    gpu.call("cuDevicePrimaryCtxRetain", c.byref(again), 0)
    assert primary.value == again.value
    gpu.call("cuCtxSetCurrent", primary)
    gpu.allocate(64)
    gpu.call("cuDevicePrimaryCtxRelease_v2", 0)
    gpu.call("cuDevicePrimaryCtxRelease_v2", 0)
    with fails(709):
        gpu.call("cuCtxSynchronize")
    gpu.call("cuCtxSetCurrent", None)
    with fails(201):
        gpu.call("cuCtxSynchronize")


def test_synchronizes_the_context_that_is_named(gpu):
    first = c.c_void_p()
    gpu.call("cuCtxGetCurrent", c.byref(first))
    Sleeper(gpu).start(100_000_000)
    gpu.context()
    gpu.call("cuCtxSynchronize_v2", None)
    gpu.call("cuCtxSynchronize_v2", first)
    gpu.call("cuCtxSetCurrent", first)
    gpu.call("cuStreamQuery", None)
    with fails(201):
        gpu.call("cuCtxSynchronize_v2", c.c_void_p(8))


@pytest.mark.usefixtures("administrator")
def test_enforces_compute_modes(install):
    driver = install()
    cuda = driver.cuda().init()
    context = cuda.context()
    driver.smi("-c", "EXCLUSIVE_PROCESS")
    assert driver.hold(1).stdout.readline() == f"{codes.DEVICE_UNAVAILABLE}\n"
    cuda.context()
    assert cuda.attribute(20) == 3
    cuda.call("cuCtxDestroy_v2", context)
    driver.smi("-c", "2")
    with fails(codes.DEVICE_UNAVAILABLE):
        cuda.context()
    assert driver.hold(1).stdout.readline() == f"{codes.DEVICE_UNAVAILABLE}\n"
    driver.smi("-c", "0")
    assert driver.hold(1).stdout.readline() == "0\n"


def test_refuses_cuda_in_a_forked_child(install):
    driver = install()
    text = run(
        driver,
        "import os; cuda.context(); cuda.allocate(1 << 20)\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    print(cuda.code('cuCtxSynchronize'), cuda.code('cuInit', 0), flush=True)\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0); cuda.allocate(1 << 20); print('whole')",
    )
    assert text == "3 3\nwhole"
    assert driver.used_mib() == [0]
