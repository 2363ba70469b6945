"""Clocks, PCIe lanes and NVLinks, as the simulated driver tells them."""

from collections.abc import Callable
from typing import Any

import pytest

from conformance.observe.gpu_condition import (
    SCRIPT,
    clocks_are_free,
    lanes_are_up,
    links_are_sound,
)
from conformance.skips import NotApplicable
from lab.cluster.flat_file import gpu_uuid
from lab.driver_clients.driver_root import DriverRoot

JUDGES = {"hot": clocks_are_free, "narrow": lanes_are_up, "link-error": links_are_sound}


def test_names_each_fault_by_its_judge_alone(
    driver: DriverRoot, run_script: Callable[[str], Any]
) -> None:
    driver.install("A100-SXM4-40GB", 4)
    sound = run_script(SCRIPT)
    for judge in JUDGES.values():
        expected, actual = judge(sound)
        assert expected == actual
    words = {
        "hot": "hardware slowdown, hardware thermal slowdown",
        "narrow": "x8 of x16",
        "link-error": "replays: 1",
    }
    for fault, named in words.items():
        driver.sim("fault", fault, "2")
        states = run_script(SCRIPT)
        for name, judge in JUDGES.items():
            expected, actual = judge(states)
            assert actual == (f"{gpu_uuid('test', 2)}: {named}" if name == fault else expected)
        driver.sim("fault", "clear", "2")


def test_expects_links_of_gpus_in_mig_mode_to_be_off(
    driver: DriverRoot, run_script: Callable[[str], Any]
) -> None:
    driver.install("A100-SXM4-40GB", 2)
    driver.sim("fault", "link-error", "0")
    driver.smi("-i", "0", "-mig", "1")
    expected, actual = links_are_sound(run_script(SCRIPT))
    assert expected == actual
    driver.sim("fault", "lost", "1")
    with pytest.raises(NotApplicable, match="no GPU of the node has NVLinks"):
        links_are_sound(run_script(SCRIPT))


def state(**known: Any) -> dict[str, Any]:
    return {"reasons": None, "width": None, "most": None, "links": None, **known}


def test_skips_a_driver_that_reports_nothing() -> None:
    for judge in JUDGES.values():
        with pytest.raises(NotApplicable):
            judge({"GPU-a": state()})


def test_accepts_load_and_an_occasional_flit_error() -> None:
    # Idle, clocks set by an application, a power cap.
    assert clocks_are_free({"GPU-a": state(reasons=0x7)})[1] == "nothing holds the clocks down"
    expected, actual = links_are_sound({"GPU-a": state(links=[[0, 0, 9, 0, None]])})
    assert expected == actual


def test_names_a_link_that_is_down_beside_neighbours() -> None:
    up = [[0, 0, 0, 0, 0]] * 12
    actual = links_are_sound({"GPU-a": state(links=up), "GPU-b": state(links=up[:11])})[1]
    assert actual == "GPU-b: 11 of 12 links up"


def test_names_the_drivers_message_in_place_of_a_value() -> None:
    assert clocks_are_free({"GPU-a": state(reasons="Unknown Error")})[1] == "GPU-a: Unknown Error"
