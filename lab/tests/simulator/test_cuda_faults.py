"""Faults as a CUDA program meets them: illegal addresses, wrong results, a lost GPU."""

import pynvml as nvml
import pytest

from lab.cluster.flat_file import gpu_uuid
from lab.driver_clients import cuda as codes
from lab.driver_clients.cuda import fails
from lab.driver_clients.cuda_process import run
from lab.driver_clients.vector_add import add_vectors


@pytest.mark.usefixtures("administrator")
def test_ends_the_context_on_an_illegal_address(install):
    driver = install()
    driver.nvml()
    watched = nvml.nvmlDeviceGetHandleByIndex(0)
    events = nvml.nvmlEventSetCreate()
    nvml.nvmlDeviceRegisterEvents(watched, nvml.nvmlEventTypeXidCriticalError, events)
    cuda = driver.cuda().init()
    context = cuda.context()
    with fails(codes.ILLEGAL_ADDRESS):
        add_vectors(cuda, 1000, claimed=1100)
    assert nvml.nvmlEventSetWait(events, 2000).eventData == 31
    with fails(codes.ILLEGAL_ADDRESS):
        cuda.allocate(16)
    cuda.call("cuCtxDestroy_v2", context)
    cuda.context()
    assert add_vectors(cuda, 1000)


@pytest.mark.usefixtures("administrator")
def test_computes_wrong_results_under_bad_arithmetic(install):
    driver = install()
    cuda = driver.cuda().init()
    cuda.context()
    assert add_vectors(cuda, 5000)
    driver.sim("fault", "bad-math", "0")
    assert not any(add_vectors(cuda, 5000) for _ in range(3))
    driver.sim("fault", "clear", "0")
    assert add_vectors(cuda, 5000)


@pytest.mark.usefixtures("administrator")
def test_reports_a_lost_gpu_to_its_programs(install):
    driver = install(count=2)
    cuda = driver.cuda().init()
    cuda.context()
    driver.sim("fault", "lost", "0")
    with fails(codes.UNKNOWN):
        add_vectors(cuda, 10)
    assert run(driver, "print(count(), cuda.uuid())") == f"1 {gpu_uuid('test', 1)[4:]}"
