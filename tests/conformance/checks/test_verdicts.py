"""What has to come of a check, and what did."""

from dataclasses import replace

import pytest

from conformance.checks.verdicts import (
    every_device_burns,
    every_device_computes,
    extra_pod,
    sees_nothing,
    shows_versions,
)
from conformance.cluster.pods import Outcome
from conformance.implementation import DIVVY, NVIDIA_DRA, Implementation
from conformance.load.fill import FillResult, Tenant
from conformance.observe.bare_look import BareLook
from conformance.observe.probes import Part
from conformance.promise import device_promises
from tests.conformance.promised_nodes import CLUSTER, live, promised


def outcome(log: str, phase: str = "Succeeded") -> Outcome:
    return Outcome(phase, 0, log, "")


def test_requires_that_a_pod_asking_for_all_gpus_sees_none() -> None:
    nothing = outcome("")
    sound = BareLook({"a plain pod": nothing, "NVIDIA_VISIBLE_DEVICES=all": nothing}, nothing)
    expected, actual = sees_nothing(sound, lambda _: None)
    assert expected == actual
    leaks = BareLook({**sound.outcomes, "NVIDIA_VISIBLE_DEVICES=all": outcome("cuda ID 0")}, None)
    expected, actual = sees_nothing(leaks, lambda _: None)
    assert expected != actual
    assert "cuda ID 0" in actual


def tenant(computes: bool = True, mib: int = 15360, uuid: str = "GPU-a") -> Tenant:
    pod = outcome("", "Running")
    return Tenant(
        "Running",
        Part(0 if computes else 1, "Test PASSED" if computes else "FAILED", pod),
        Part(0, f"device: {mib} MiB total", pod),
        Part(0, "GPU 0: OK", pod),
        (uuid,),
    )


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        (tenant(computes=False, uuid="GPU-b"), "GPU-b"),
        (tenant(mib=7000, uuid="GPU-b"), "memory 7000"),
    ],
)
def test_names_one_bad_device_of_several(bad: Tenant, says: str) -> None:
    (promise,) = device_promises(promised(CLUSTER, live("n1")))
    expected, actual = every_device_computes(
        FillResult((tenant(), tenant()), None, (), None), promise
    )
    assert expected == actual
    expected, actual = every_device_computes(FillResult((tenant(), bad), None, (), None), promise)
    assert expected != actual
    assert says in actual
    burnt = replace(tenant(uuid="GPU-b"), burn=Part(1, "GPU 0: FAULTY", outcome("")))
    expected, actual = every_device_burns(FillResult((tenant(), burnt), None, (), None), promise)
    assert expected != actual
    assert "GPU-b" in actual


@pytest.mark.parametrize(
    ("implementation", "event"),
    [
        (DIVVY, "FailedScheduling: 0/1 nodes: 1 Insufficient nvidia.com/gpu"),
        (NVIDIA_DRA, "FailedScheduling: 0/1 nodes: 1 cannot allocate all claims"),
    ],
)
def test_expects_the_schedulers_words_for_plugins_and_for_dra_drivers(
    implementation: Implementation, event: str
) -> None:
    (promise,) = device_promises(promised(CLUSTER, live("n1")))
    waits = outcome("", "Pending")
    tenants = (tenant(),) * promise.count
    for events, holds in (((event,), True), (("FailedScheduling: untolerated taint",), False)):
        filled = FillResult(tenants, waits, events, None)
        expected, actual = extra_pod(filled, promise, implementation)
        assert (expected == actual) is holds


@pytest.mark.parametrize(
    ("code", "table", "holds"),
    [
        (0, "| NVIDIA-SMI 580.95   Driver Version: 580.95   CUDA Version: 13.0 |", True),
        (0, "| NVIDIA-SMI 610.57   KMD Version: 610.57   CUDA UMD Version: 13.3 |", True),
        (0, "| NVIDIA-SMI 610.57   KMD Version: 610.57 |", False),
        (9, "NVIDIA-SMI has failed", False),
    ],
)
def test_takes_nvidia_smis_table_of_every_driver(code: int, table: str, holds: bool) -> None:
    assert shows_versions(Part(code, table, outcome("")))[0] is holds
