"""A node whose driver is older than the stack file accepts says so."""

from __future__ import annotations

from divvy.agent.gpu.desired import DesiredState
from divvy.agent.gpu.hardware import Snapshot


def test_names_a_driver_below_the_minimum() -> None:
    older, newer = (Snapshot(version, (12, 2), ()) for version in ("535.54.03", "535.183.01"))
    desired = DesiredState(min_version="535.104")
    expected = "driver 535.54.03 is below driver.minVersion 535.104"
    assert [desired.driver_problem(seen) for seen in (older, newer, None)] == [expected, "", ""]
    assert DesiredState().driver_problem(older) == ""
