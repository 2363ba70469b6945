"""Compute modes of GPUs, as the simulated driver gives them."""

from collections.abc import Callable
from typing import Any

from conformance.observe.compute_mode import SCRIPT, all_default
from tests.simulator.driver_root import DriverRoot

SOUND = "compute mode Default"


def test_a_gpu_that_lets_one_process_in_is_named(
    driver: DriverRoot, run_script: Callable[[str], Any]
) -> None:
    driver.install("T4", 2)
    modes = run_script(SCRIPT)
    assert all_default(modes) == (SOUND, SOUND)
    driver.smi("-i", "1", "-c", "EXCLUSIVE_PROCESS")
    modes = run_script(SCRIPT)
    assert all_default(modes) == (SOUND, f"{list(modes)[1]}: Exclusive_Process")


def test_a_driver_without_modes_lets_every_process_in() -> None:
    assert all_default({"GPU-a": None}) == (SOUND, SOUND)
    assert all_default({"GPU-a": "Unknown Error"})[1] == "GPU-a: Unknown Error"
