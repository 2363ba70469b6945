"""Many processes in PID namespaces of their own, killed while they allocate and free."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from lab.driver_clients.driver_root import eventually

pytestmark = pytest.mark.lab
COUNT = 32
CHURN = """
import ctypes, os, random, sys
cuda = ctypes.CDLL(sys.argv[1])
random.seed(int(sys.argv[2]))
context, held = ctypes.c_void_p(), []
assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(context), 0, 0) == 0
print(os.getpid(), flush=True)
while True:
    if held and random.random() < 0.45:
        assert cuda.cuMemFree_v2(ctypes.c_uint64(held.pop(random.randrange(len(held))))) == 0
    else:
        pointer, size = ctypes.c_uint64(), random.randrange(1, 64) << 20
        if cuda.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(size)) == 0:
            held.append(pointer.value)
"""


def test_leaves_nothing_of_many_killed_processes(install):
    driver = install("T4", 1)
    library = str(driver.library("libcuda.so.1"))
    # Each is process 1 of its own namespace, as the main process of a container is.
    children = [
        subprocess.Popen(
            [
                "unshare",
                "--pid",
                "--fork",
                "--kill-child",
                sys.executable,
                "-S",
                "-c",
                CHURN,
                library,
                str(number),
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(COUNT)
    ]
    driver.processes.extend(children)
    assert [child.stdout.readline() for child in children] == ["1\n"] * COUNT
    shown = driver.sim("show")
    pids = [int(line.split()[1]) for line in shown.splitlines() if line.startswith("  process")]
    # The daemon knows them by this namespace's numbers, all different.
    assert len(set(pids)) == COUNT
    assert 1 not in pids
    generator = random.Random(3)
    generator.shuffle(pids)
    for number, pid in enumerate(pids):
        time.sleep(generator.random() / 100)
        os.kill(pid, signal.SIGKILL)
        if number == COUNT // 2:
            assert driver.used_mib()[0] > 0
    assert eventually(lambda: driver.used_mib() == [0])
    assert eventually(lambda: "process" not in driver.sim("show"))
    assert driver.hold(1000).stdout.readline() == "0\n"
