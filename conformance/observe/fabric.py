"""The state of NVSwitch fabrics: CUDA does not start on a GPU that is not part of its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.evidence import Verdict
from conformance.observe.nvml_script import OPEN_NVML, run_nvml_script
from conformance.skips import not_applicable

# As nvidia-smi -q words NVML_GPU_FABRIC_STATE_*; the first is that of GPUs without NVSwitches.
_STATES = ("N/A", "Not Started", "In Progress", "Completed")
# Runs in the agent's pod. Drivers know the state from Hopper on: NVLink is off in MIG mode, and
# nothing is asked of such a GPU.
SCRIPT = (
    OPEN_NVML
    + """\
def fabric(gpu):
    if in_mig_mode(gpu):
        return None
    # The plain call is the older one, and the first to go.
    for call, info in (
        (nvml.nvmlDeviceGetGpuFabricInfoV, nvml.c_nvmlGpuFabricInfo_v2_t()),
        (nvml.nvmlDeviceGetGpuFabricInfo, nvml.c_nvmlGpuFabricInfo_t()),
    ):
        said = ask(call, gpu, ctypes.byref(info))
        if isinstance(said, str):
            return said
        if said is not None:
            return {"state": info.state, "status": info.status}
    return None
print_each(fabric, str)
"""
)
# Of a GPU: its state and the status of its registration, the driver's words, or None.
FabricStates = Mapping[str, Any]


def read_fabric(target: ClusterUnderTest, node: str) -> FabricStates | None:
    """Return each GPU's state in the fabric by UUID; None without an agent to ask."""
    states: FabricStates | None = run_nvml_script(target, node, SCRIPT)
    return states


def fabric_is_up(fabric: FabricStates) -> Verdict:
    """Judge the GPUs of a node that are in a fabric; not applicable where none is."""
    states = {uuid: _state(answer) for uuid, answer in fabric.items()}
    inside = {uuid: state for uuid, state in states.items() if state != _STATES[0]}
    # A GPU that answers nothing is of the fabric only if others are: NODE-07 names it too.
    if not any(isinstance(fabric[uuid], dict) for uuid in inside):
        not_applicable("no GPU of the node is behind an NVSwitch whose fabric the driver reports")
    down = [f"{uuid}: {state}" for uuid, state in inside.items() if state != _STATES[3]]
    up = len(inside) - len(down)
    return f"GPUs in the fabric: {len(inside)}", "; ".join([f"GPUs in the fabric: {up}", *down])


def _state(answer: Any) -> str:
    """Return the state in words; a registration that ended with an error is not completed."""
    if answer is None:
        return _STATES[0]
    if isinstance(answer, str):
        return answer
    state, status = answer["state"], answer["status"]
    name = _STATES[state] if 0 <= state < len(_STATES) else f"state {state}"
    return f"{name}, NVML error {status}" if name == _STATES[3] and status else name
