"""Whether several processes may use a GPU at once: its compute mode."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.evidence import Verdict
from conformance.observe.nvml_script import OPEN_NVML, run_nvml_script

# As nvidia-smi words NVML_COMPUTEMODE_*.
_MODES = ("Default", "Exclusive_Thread", "Prohibited", "Exclusive_Process")
# Runs in the agent's pod.
SCRIPT = (
    OPEN_NVML
    + """\
modes = {}
for index in range(nvml.nvmlDeviceGetCount()):
    gpu = ask(nvml.nvmlDeviceGetHandleByIndex, index)
    if not isinstance(gpu, str):
        modes[ask(nvml.nvmlDeviceGetUUID, gpu)] = ask(nvml.nvmlDeviceGetComputeMode, gpu)
print(json.dumps(modes))
"""
)


def compute_modes(target: ClusterUnderTest, node: str) -> Mapping[str, int | str | None] | None:
    """Return each GPU's mode by UUID; None where there is no agent to ask the driver."""
    modes: Mapping[str, int | str | None] | None = run_nvml_script(target, node, SCRIPT)
    return modes


def all_default(modes: Mapping[str, int | str | None]) -> Verdict:
    """Judge the modes of a node's GPUs; a driver that has none lets every process in."""
    other = [
        f"{uuid}: {_MODES[mode] if isinstance(mode, int) and mode < len(_MODES) else mode}"
        for uuid, mode in modes.items()
        if mode not in (0, None)
    ]
    return "compute mode Default", "; ".join(other) or "compute mode Default"
