"""Errors of a GPU's memory that wait for a reset or for a repair, as the driver counts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.evidence import Verdict
from conformance.observe.nvml_script import OPEN_NVML, run_nvml_script
from conformance.skips import not_applicable

Counters = Mapping[str, int | str | None]
# Corrected errors, and what was remapped or retired for good, are the past of a GPU that works.
AMISS = {
    "uncorrected": "uncorrectable ECC errors since the last reset",
    "remapping_pending": "row remappings pending",
    "remapping_failed": "row remappings failed",
    "retirement_pending": "page retirements pending",
}
# Runs in the agent's pod. What a model or its driver does not have is null: rows are remapped from
# Ampere on, pages were retired before, and ECC can be off.
SCRIPT = (
    OPEN_NVML
    + """\
def part(answer, index):
    return answer[index] if isinstance(answer, tuple) else answer
def pages(answer):
    return len(answer) if isinstance(answer, list) else answer
def counters(gpu):
    rows = ask(nvml.nvmlDeviceGetRemappedRows, gpu)
    return {
        "uncorrected": ask(nvml.nvmlDeviceGetTotalEccErrors, gpu, 1, 0),
        "uncorrected_ever": ask(nvml.nvmlDeviceGetTotalEccErrors, gpu, 1, 1),
        "remapped": part(rows, 1),
        "remapping_pending": part(rows, 2),
        "remapping_failed": part(rows, 3),
        "retired": pages(ask(nvml.nvmlDeviceGetRetiredPages, gpu, 1)),
        "retirement_pending": ask(nvml.nvmlDeviceGetRetiredPagesPendingStatus, gpu),
    }
print_each(counters, lambda words: {"uncorrected": words})
"""
)


def memory_errors(target: ClusterUnderTest, node: str) -> Mapping[str, Counters] | None:
    """Return each GPU's counters by UUID; None without an agent to ask the driver."""
    counters: Mapping[str, Counters] | None = run_nvml_script(target, node, SCRIPT)
    return counters


def memory_is_sound(gpu_counters: Mapping[str, Counters], gpus: int) -> Verdict:
    """Judge the counters of a node's GPUs; not applicable where none of them counts anything."""
    if gpu_counters and not any(_available(counters) for counters in gpu_counters.values()):
        not_applicable("no GPU of the node counts memory errors: no ECC, or it is off")
    bad = [
        f"{uuid}: {', '.join(words)}"
        for uuid, counters in gpu_counters.items()
        if (words := _amiss(counters))
    ]
    there = f"{len(gpu_counters)} GPUs"
    if len(gpu_counters) < gpus:
        listed = f"the driver lists {len(gpu_counters)} of {gpus} GPUs"
        there = f"{listed} (see NODE-01); in their memory"
    return f"{gpus} GPUs, nothing amiss", f"{there}, {'; '.join(bad) or 'nothing amiss'}"


def _available(counters: Counters) -> Sequence[str]:
    return [key for key in AMISS if counters.get(key) is not None]


def _amiss(counters: Counters) -> list[str]:
    """Return what is not 0; a counter that cannot be read has the driver's words."""
    return [f"{AMISS[key]}: {counters[key]}" for key in _available(counters) if counters[key]]
