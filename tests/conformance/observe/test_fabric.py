"""GPUs behind NVSwitches: their state in the fabric, as the simulated driver tells it."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.observe.fabric import SCRIPT, fabric_is_up
from conformance.skips import NotApplicable
from lab.cluster.flat_file import gpu_uuid
from lab.driver_clients.driver_root import DriverRoot

UP = {"state": 3, "status": 0}


@pytest.fixture
def states(run_script: Callable[[str], Any]) -> Callable[[], Any]:
    return lambda: run_script(SCRIPT)


def test_names_a_gpu_outside_the_fabric(driver: DriverRoot, states: Callable[[], Any]) -> None:
    driver.install("H100-80GB-HBM3", 8)
    whole = "GPUs in the fabric: 8"
    assert fabric_is_up(states()) == (whole, whole)
    driver.sim("fault", "no-fabric", "3")
    left = f"GPUs in the fabric: 7; {gpu_uuid('test', 3)}: In Progress"
    assert fabric_is_up(states()) == (whole, left)
    driver.sim("fault", "clear", "3")
    driver.sim("fault", "lost", "0")
    assert "GPU 0: GPU is lost" in fabric_is_up(states())[1]


def test_asks_nothing_of_a_gpu_in_mig_mode(driver: DriverRoot, states: Callable[[], Any]) -> None:
    driver.install("H100-80GB-HBM3", 8)
    driver.smi("-i", "2", "-mig", "1")
    driver.sim("fault", "no-fabric", "2")
    seven = "GPUs in the fabric: 7"
    assert fabric_is_up(states()) == (seven, seven)


@pytest.mark.parametrize(("model", "count"), [("A100-SXM4-40GB", 8), ("H100-80GB-HBM3", 2)])
def test_skips_gpus_without_switches_and_older_models(
    driver: DriverRoot, states: Callable[[], Any], model: str, count: int
) -> None:
    driver.install(model, count)
    driver.sim("fault", "lost", "0")
    with pytest.raises(NotApplicable, match="no GPU of the node is behind an NVSwitch"):
        fabric_is_up(states())


def test_fails_a_registration_that_ended_with_an_error() -> None:
    expected, seen = fabric_is_up({"GPU-a": UP, "GPU-b": {"state": 3, "status": 999}})
    assert seen != expected
    assert seen == "GPUs in the fabric: 1; GPU-b: Completed, NVML error 999"
