"""What a test needs that runs the simulated driver."""

from __future__ import annotations

import pytest

from divvy.lab.simulated_driver import SOURCE

needs_simulator = pytest.mark.skipif(
    not (SOURCE / "build/divvy-simd").exists(), reason="the simulated driver is not built"
)
