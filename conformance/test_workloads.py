"""Workloads: what users run passes on every kind of device."""

from __future__ import annotations

import re

import pytest

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.fixtures import Burns, Probes
from conformance.probes import part
from conformance.promise import DevicePromise


@check("WORK-01")
def test_vector_add_passes(probes: Probes, promise: DevicePromise, evidence: Evidence) -> None:
    evidence.command = "cuda-vector-add"
    found = part(probes[promise], "vector-add")
    evidence.add(found.log)
    passed = found.code == 0 and "Test PASSED" in found.log
    evidence.require_that(passed, "exit code 0, `Test PASSED`", found)


@check("WORK-02")
@pytest.mark.exclusive
def test_gpu_burn_is_ok(burns: Burns, promise: DevicePromise, evidence: Evidence) -> None:
    evidence.command = " ".join(burns.command)
    outcome = burns.outcomes[promise]
    evidence.add(outcome.log)
    good = (
        outcome.code == 0
        and re.search(r"GPU 0: OK", outcome.log)
        and not re.search(r"DIED|FAULTY|WARNING", outcome.log)
    )
    verdict = re.search(r"GPU 0: \w+", outcome.log)
    seen = f"exit code {outcome.code}, `{verdict.group()}`" if verdict else outcome
    evidence.require_that(good, "exit code 0, `GPU 0: OK`, no DIED, FAULTY or WARNING", seen)


@check("WORK-03")
def test_nvidia_smi_answers(probes: Probes, promise: DevicePromise, evidence: Evidence) -> None:
    evidence.command = "nvidia-smi"
    found = part(probes[promise], "nvidia-smi")
    evidence.add(found.log)
    words = ("NVIDIA-SMI", "Driver Version:", "CUDA Version:")
    missing = [word for word in words if word not in found.log]
    evidence.require_that(
        found.code == 0 and not missing, f"exit code 0 and {', '.join(words)}", found
    )
