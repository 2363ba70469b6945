"""Workloads: what users run passes on every kind of device."""

from __future__ import annotations

import re

import pytest

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.pods import Workplace
from conformance.promise import DevicePromise

BURN_SECONDS = 3


@check("WORK-01")
def test_vector_add_passes(pods: Workplace, promise: DevicePromise, evidence: Evidence) -> None:
    evidence.command = "cuda-vector-add"
    outcome = pods.run(promise.node.name, ["cuda-vector-add"], promise.resource)
    evidence.add(outcome.log)
    passed = outcome.code == 0 and "Test PASSED" in outcome.log
    evidence.require_that(passed, "exit code 0 and `Test PASSED`", outcome)


@check("WORK-02")
@pytest.mark.exclusive
def test_gpu_burn_is_ok(pods: Workplace, promise: DevicePromise, evidence: Evidence) -> None:
    evidence.command = f"gpu-burn -m 256 {BURN_SECONDS}"
    command = ["gpu-burn", "-m", "256", str(BURN_SECONDS)]
    outcome = pods.run(promise.node.name, command, promise.resource, seconds=120)
    evidence.add(outcome.log)
    good = (
        outcome.code == 0
        and re.search(r"GPU 0: OK", outcome.log)
        and not re.search(r"DIED|FAULTY|WARNING", outcome.log)
    )
    evidence.require_that(good, "exit code 0, `GPU 0: OK`, no DIED, FAULTY or WARNING", outcome)


@check("WORK-03")
def test_nvidia_smi_answers(pods: Workplace, promise: DevicePromise, evidence: Evidence) -> None:
    evidence.command = "nvidia-smi"
    outcome = pods.run(promise.node.name, ["nvidia-smi"], promise.resource)
    evidence.add(outcome.log)
    words = ("NVIDIA-SMI", "Driver Version:", "CUDA Version:")
    missing = [word for word in words if word not in outcome.log]
    evidence.require_that(
        outcome.code == 0 and not missing, f"exit code 0 and {', '.join(words)}", outcome
    )
