"""Two drivers' answers side by side: codes, shapes and values that differ, and those that may."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from lab.kit.answers import both_drivers
from lab.kit.answers.differences import Difference, compare, public, text

NAME, CLOCK = "nvmlDeviceGetName(gpu)", "nvmlDeviceGetClockInfo(gpu, 0)"
MEMORY = "nvmlDeviceGetMemoryInfo(gpu)"


def answered(**answers: Any) -> dict[str, Any]:
    return {
        {"name": NAME, "clock": CLOCK, "memory": MEMORY}[call]: {
            "code": value if isinstance(value, int) else 0,
            "value": None if isinstance(value, int) else value,
        }
        for call, value in answers.items()
    }


def differences(simulated: dict[str, Any], real: dict[str, Any]) -> list[Difference]:
    return list(compare("nvml", simulated, real).differences)


def test_finds_no_difference_of_the_same_answers() -> None:
    both = answered(name="T4", memory={"total": 1, "free": 2}, clock=3)
    comparison = compare("nvml", both, both)
    assert (comparison.compared, comparison.differences) == (3, ())


def test_reports_both_of_two_values() -> None:
    changes = differences(answered(name="T4"), answered(name="L4"))
    assert changes == [Difference(NAME, "value", "T4", "L4")]


def test_reports_another_return_code_without_a_value() -> None:
    assert differences(answered(name="T4"), answered(name=3)) == [
        Difference(NAME, "code", "0", "3")
    ]


def test_compares_fields_one_by_one_and_usage_by_its_shape() -> None:
    ours = answered(memory={"total": 100, "free": 99})
    theirs = answered(memory={"total": 101, "free": 50})
    assert differences(ours, theirs) == [Difference(f"{MEMORY}.total", "value", "100", "101")]
    theirs = answered(memory={"total": 100, "free": 50, "reserved": 1})
    assert differences(ours, theirs) == [
        Difference(f"{MEMORY}.reserved", "shape", "nothing", "number")
    ]


def test_compares_fluctuating_values_by_their_shape() -> None:
    moment, later = ({CLOCK: {"code": 0, "value": mhz}} for mhz in (300, 1980))
    assert differences(moment, later) == []
    text = {CLOCK: {"code": 0, "value": "fast"}}
    assert differences(moment, text) == [Difference(CLOCK, "shape", "number", "text")]


def test_names_calls_that_one_side_lacks() -> None:
    lacking = {CLOCK: {"code": 13, "value": None}}  # NVML's word for a missing function
    comparison = compare("nvml", {**answered(name="T4"), **lacking}, answered(clock=3, name="T4"))
    assert comparison.compared == 1
    assert (comparison.only_simulated, comparison.only_real) == ((), (CLOCK,))


def test_records_answers_without_identifying_the_gpu() -> None:
    answers = {
        "nvmlDeviceGetUUID(gpu)": {"code": 0, "value": "GPU-1"},
        "nvmlDeviceGetSerial(gpu)": {"code": 0, "value": "132"},
        "nvmlDeviceGetPdi(gpu)": {"code": 0, "value": 8206879},
        NAME: {"code": 0, "value": "T4"},
    }
    values = ["<text>", "<text>", "<number>", "T4"]
    assert [answer["value"] for answer in public(answers).values()] == values
    assert public(public(answers)) == public(answers)


def test_compares_a_public_value_by_the_shape_that_it_states() -> None:
    moment = {CLOCK: {"code": 0, "value": 300}}
    assert differences(moment, public(moment)) == []
    assert differences(public(moment), {CLOCK: {"code": 0, "value": [300]}}) == [
        Difference(CLOCK, "shape", "number", "list of number")
    ]


def test_writes_a_call_on_each_line_in_order() -> None:
    answers = {"nvml": answered(name="T4", clock=3), "cuda": {}}
    written = text(answers)
    assert json.loads(written) == answers
    assert [line for line in written.splitlines() if "(" in line] == [
        f'  "{CLOCK}": {{"code": 3, "value": null}},',
        f'  "{NAME}": {{"code": 0, "value": "T4"}}',
    ]


def test_asks_on_after_a_call_that_ends_the_process(tmp_path: Path) -> None:
    """NVIDIA's 580 does at a name of no length; what comes after it is told all the same."""
    source = """
        #include <stdlib.h>
        int cuInit(unsigned flags) { return flags != 0; }
        int cuDriverGetVersion(int *version) { return version == 0 || (*version = 13000) == 0; }
        int cuDeviceGetUuid(void *uuid, int device) { abort(); }
        int cuDeviceTotalMem_v2(size_t *bytes, int device) { return device; }
    """
    (tmp_path / "driver.c").write_text(source)
    command = ["cc", "-shared", "-o", tmp_path / "libcuda.so.1", tmp_path / "driver.c"]
    subprocess.run([*command, "-Wno-implicit"], check=True)
    recorded, ended = both_drivers.record(
        "cuda", tmp_path / "libcuda.so.1", 0, tmp_path / "answers", os.environ
    )
    assert ended == "exit code -6 in cuDeviceGetUuid(0)"
    assert recorded.answers["cuDeviceTotalMem_v2(99)"] == {"code": 99, "value": None}
