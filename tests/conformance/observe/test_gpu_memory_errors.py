"""Errors of GPU memory: the counters as the simulated driver gives them, and what they mean."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.observe.gpu_memory_errors import SCRIPT, memory_is_sound
from conformance.skips import NotApplicable
from lab.driver_clients.driver_root import DriverRoot

NOTHING = dict.fromkeys(("uncorrected", "remapping_pending", "retirement_pending"))
SOUND = "2 GPUs, nothing amiss"


@pytest.fixture
def counters(run_script: Callable[[str], Any]) -> Callable[[], Any]:
    return lambda: run_script(SCRIPT)


@pytest.mark.parametrize(
    ("model", "pending"),
    [
        ("H100-80GB-HBM3", "row remappings pending: 1"),
        ("T4", "page retirements pending: 1"),
    ],
)
def test_names_an_uncorrectable_error_until_a_reset(
    driver: DriverRoot, counters: Callable[[], Any], model: str, pending: str
) -> None:
    driver.install(model, 2)
    assert memory_is_sound(counters(), 2) == (SOUND, SOUND)
    driver.sim("fault", "ecc-corrected", "0")
    assert memory_is_sound(counters(), 2) == (SOUND, SOUND)
    driver.sim("fault", "ecc", "1")
    counts = counters()
    broken = list(counts)[1]
    verdict = f"2 GPUs, {broken}: uncorrectable ECC errors since the last reset: 1, {pending}"
    assert memory_is_sound(counts, 2) == (SOUND, verdict)
    # What was replaced is the GPU's past.
    driver.sim("fault", "clear", "1")
    counts = counters()
    assert counts[broken]["uncorrected_ever"] == 1
    assert memory_is_sound(counts, 2) == (SOUND, SOUND)


def test_fails_a_lost_gpu(driver: DriverRoot, counters: Callable[[], Any]) -> None:
    driver.install("A100-SXM4-40GB", 2)
    driver.sim("fault", "lost", "0")
    _, seen = memory_is_sound(counters(), 2)
    assert "GPU 0: uncorrectable ECC errors since the last reset: GPU is lost" in seen


def test_fails_when_there_is_no_gpu() -> None:
    verdict = "the driver lists 0 of 2 GPUs (see NODE-01); in their memory, nothing amiss"
    assert memory_is_sound({}, 2) == (SOUND, verdict)


def test_skips_gpus_that_count_no_errors() -> None:
    with pytest.raises(NotApplicable, match="no GPU of the node counts memory errors"):
        memory_is_sound({"GPU-1": NOTHING, "GPU-2": NOTHING}, 2)
    # Beside one that does they are not asked.
    assert memory_is_sound({"GPU-1": NOTHING, "GPU-2": {"uncorrected": 0}}, 2) == (SOUND, SOUND)


def test_names_a_row_that_could_not_be_remapped() -> None:
    counts = {"GPU-1": {"uncorrected": 0, "remapping_failed": 1}, "GPU-2": {"uncorrected": 0}}
    assert memory_is_sound(counts, 2)[1] == "2 GPUs, GPU-1: row remappings failed: 1"
