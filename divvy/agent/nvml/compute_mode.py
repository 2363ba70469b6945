"""A GPU's compute mode: which processes it takes.

Runs in the child process only (see ``divvy.agent.nvml.child``).
"""

from __future__ import annotations

from typing import Any

import pynvml as nvml

from divvy.agent.nvml.mig_calls import handle


def compute_mode(bus_id: str) -> int:
    """Return the mode as NVML counts them (nvmlComputeMode_t)."""
    return int(nvml.nvmlDeviceGetComputeMode(handle(bus_id)))


def set_compute_mode(bus_id: str, mode: int) -> dict[str, Any]:
    """Set the mode."""
    nvml.nvmlDeviceSetComputeMode(handle(bus_id), mode)
    return {}
