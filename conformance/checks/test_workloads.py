"""Workloads: what users run passes on every kind of device."""

from __future__ import annotations

import pytest

from conformance.check import EVERY, check
from conformance.checks.verdicts import (
    every_device_burns,
    every_device_computes,
    shows_versions,
)
from conformance.evidence import Evidence
from conformance.fixtures import Fills, Probes
from conformance.load.neighbours import gigaflops
from conformance.observe.probes import adds, part
from conformance.promise import DevicePromise


@check(
    "WORK-01",
    "cuda-vector-add passes on a device",
    "MUST",
    EVERY,
    "the pod's log has the driver's error name; libraries come from the agent's CDI spec",
)
def test_vector_add_passes(probes: Probes, promise: DevicePromise, evidence: Evidence) -> None:
    evidence.command = "cuda-vector-add"
    vector_add = part(probes[promise], "vector-add")
    evidence.add(vector_add.log)
    evidence.require_that(adds(vector_add), "exit code 0, `Test PASSED`", vector_add)


@check(
    "WORK-02",
    "gpu-burn computes without an error on every device",
    "MUST",
    EVERY,
    "a GPU that computes wrongly must be taken out of service",
)
@pytest.mark.exclusive
def test_gpu_burn_is_ok(fills: Fills, promise: DevicePromise, evidence: Evidence) -> None:
    filled = fills[promise]
    evidence.command = "gpu-burn, in every pod of a full node"
    for tenant in filled.tenants:
        evidence.add(f"{tenant.name}: {tenant.burn.log.strip()[-300:]}")
    evidence.measure("Gflop/s", sum(gigaflops(tenant.burn.log) for tenant in filled.tenants))
    evidence.require(*every_device_burns(filled, promise))


@check(
    "WORK-03",
    "nvidia-smi answers in a pod",
    "SHOULD",
    EVERY,
    "the CDI spec must name nvidia-smi and libnvidia-ml of the loaded driver",
)
def test_nvidia_smi_answers(probes: Probes, promise: DevicePromise, evidence: Evidence) -> None:
    evidence.command = "nvidia-smi"
    smi = part(probes[promise], "nvidia-smi")
    evidence.add(smi.log)
    evidence.require_that(*shows_versions(smi))


@check(
    "WORK-07",
    "every device adds vectors, and has the memory of its kind",
    "MUST",
    EVERY,
    "a GPU that computes wrongly must be taken out of service; the evidence names it",
)
@pytest.mark.exclusive
def test_every_device_computes(fills: Fills, promise: DevicePromise, evidence: Evidence) -> None:
    filled = fills[promise]
    evidence.command = "cuda-vector-add and mem-hog, in every pod of a full node"
    evidence.add("\n".join(f"{tenant.name}: {tenant.vector_add}" for tenant in filled.tenants))
    evidence.require(*every_device_computes(filled, promise))
