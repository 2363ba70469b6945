"""What a test needs that runs the simulated driver."""

from __future__ import annotations

import os

import pytest

from lab.cluster.simulated_driver import SOURCE

needs_simulator = pytest.mark.skipif(
    not (SOURCE / "build/divvy-simd").exists(), reason="the simulated driver is not built"
)

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="settings of the driver are root's")

# The agent as a process on a node with the simulated driver.
on_simulated_node = [pytest.mark.agent_process, needs_simulator]
