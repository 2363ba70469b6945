"""The simulated driver's files, as programs of NVIDIA's read them."""

from __future__ import annotations

from lab.cluster.simulated_driver import majors_table

MACHINE = "Character devices:\n  1 mem\n195 nvidia\n\nBlock devices:\n259 blkext\n"


def test_adds_the_drivers_devices_to_those_of_the_machine() -> None:
    assert majors_table(MACHINE, {"nvidia": 195, "nvidia-caps": 510}) == (
        "Character devices:\n195 nvidia\n510 nvidia-caps\n  1 mem\n\nBlock devices:\n259 blkext\n"
    )
