"""A run's record and page: results, identities, and SIMULATED wherever a person looks."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hardware_kit.page import page
from hardware_kit.record import (
    DISCLAIMER,
    Finding,
    Run,
    Step,
    Table,
    read_run,
    status_of,
    without_identities,
)

UUID = "GPU-7ed1bb58-a770-5c68-b716-b7cea2e2ec2e"
MACHINE = {
    "simulated": False,
    "driver": "580.1",
    "gpus": ["1 × NVIDIA H200"],
    "memoryMiB": [143771],
    "kernel": "6.1",
    "system": "Debian",
    "processors": 16,
}
STEP = Step(
    "labels",
    "labels are right",
    "passed",
    findings=(Finding("gpu.count", "1", "1", True), Finding("CUDA", "", "13.0", None)),
    tables=(Table("Two | figures", ("a", "b"), (("1", "2|3"),)),),
)
RUN = Run(MACHINE, {"revision": "abc"}, "2026-01-02T03:04:05Z", 12.3, (STEP,), ("--mig",))


def test_reads_back_a_written_record() -> None:
    assert read_run(json.loads(json.dumps(RUN.document()))) == RUN


@pytest.mark.parametrize("other", [{}, {"kind": "GpuConformanceReport", "version": 1}])
def test_refuses_another_document(other: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="is no DivvyHardwareRecord"):
        read_run(other)


@pytest.mark.parametrize(
    ("change", "result"),
    [
        ({}, "success"),
        ({"steps": (STEP, replace(STEP, status="not made"))}, "partial"),
        ({"machine": {**MACHINE, "simulated": True}}, "partial"),
        ({"interrupted": True}, "partial"),
        ({"steps": (replace(STEP, status="failed"), STEP), "interrupted": True}, "failure"),
    ],
)
def test_derives_the_result_of_a_run(change: dict[str, object], result: str) -> None:
    assert replace(RUN, **change).result == result


def test_fails_a_step_by_a_false_finding_only() -> None:
    told, good = Finding("a", "", "1", None), Finding("b", "1", "1", True)
    assert status_of([told, good]) == ("passed", "")
    wrong = Finding("c", "2", "3", False)
    assert status_of([told, wrong, good]) == ("failed", "c: expected 2, found 3")


def test_hides_whose_gpus_a_step_used() -> None:
    step = replace(
        STEP,
        reason=f"{UUID} is lost",
        log=f"MIG-{UUID[4:]}",
        findings=(Finding(UUID, UUID, UUID, True),),
    )
    told = json.dumps(replace(RUN, steps=(without_identities(step),)).document())
    assert UUID[4:] not in told
    assert "GPU-… is lost" in json.loads(told)["steps"][0]["reason"]


def test_names_gpu_driver_and_date_on_the_page() -> None:
    text = page(RUN)
    assert text.startswith("# 1 × NVIDIA H200, driver 580.1, 2026-01-02\n")
    assert "SIMULATED" not in text
    assert "| 1 | 2\\|3 |" in text


def test_marks_a_simulated_run_in_every_title() -> None:
    text = page(replace(RUN, machine={**MACHINE, "simulated": True}))
    titles = [line for line in text.splitlines() if line.startswith("#")]
    assert len(titles) == 2
    assert all("SIMULATED" in line for line in titles)
    assert f"**{DISCLAIMER}**" in text


def test_reports_a_failed_step_with_reason_and_last_output() -> None:
    failed = replace(STEP, status="failed", reason="it broke off", log="one\n```\ntwo")
    text = page(replace(RUN, steps=(failed,)))
    assert "| labels | labels are right | failed | 0.0 | it broke off |" in text
    assert text.count("```") == 2
