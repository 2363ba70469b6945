"""Causes of a slow GPU: clocks held down, PCIe lanes that are down, NVLink errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.evidence import Verdict
from conformance.observe.nvml_script import OPEN_NVML, run_nvml_script
from conformance.skips import not_applicable

# NVML's reasons for lower clocks that are none of the load's; a power cap is every busy GPU's.
_SLOWED = {
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
# NVML_NVLINK_ERROR_DL_*: checksums of single flits fail at times on sound links, and are shown.
_LINK_ERRORS = ("replays", "recoveries", "flit checksums", "data checksums", "ECC errors")
_HARMLESS = ("flit checksums",)
# Runs in the agent's pod. NVLink is off in MIG mode, and nothing of it is asked.
SCRIPT = (
    OPEN_NVML
    + """\
def link(gpu, number):
    # Above a GPU's last link every driver has an error of its own.
    if ask(nvml.nvmlDeviceGetNvLinkState, gpu, number) != 1:
        return None
    return [ask(nvml.nvmlDeviceGetNvLinkErrorCounter, gpu, number, kind) for kind in range(5)]
def links(gpu):
    if in_mig_mode(gpu):
        return None
    every = [link(gpu, number) for number in range(nvml.NVML_NVLINK_MAX_LINKS)]
    return [counts for counts in every if counts is not None] or None
def reasons(gpu):
    # The second is the older name, which older drivers have alone.
    now = ask(nvml.nvmlDeviceGetCurrentClocksEventReasons, gpu)
    return ask(nvml.nvmlDeviceGetCurrentClocksThrottleReasons, gpu) if now is None else now
print_each(
    lambda gpu: {
        "reasons": reasons(gpu),
        "width": ask(nvml.nvmlDeviceGetCurrPcieLinkWidth, gpu),
        "most": ask(nvml.nvmlDeviceGetMaxPcieLinkWidth, gpu),
        "pcie_replays": ask(nvml.nvmlDeviceGetPcieReplayCounter, gpu),
        "links": links(gpu),
    }
)
"""
)
# Of each GPU that answers, by UUID; what the driver does not have is None, an error its words.
Conditions = Mapping[str, Mapping[str, Any]]


def read_conditions(target: ClusterUnderTest, node: str) -> Conditions | None:
    """Return the condition of each GPU of a node; None without an agent to ask."""
    conditions: Conditions | None = run_nvml_script(target, node, SCRIPT)
    return conditions


def clocks_are_free(conditions: Conditions) -> Verdict:
    """Judge why clocks are down now."""
    known = {
        uuid: condition["reasons"]
        for uuid, condition in conditions.items()
        if condition["reasons"] is not None
    }
    if not known:
        not_applicable("the driver gives no reasons for lower clocks")
    words = {uuid: _slowed(reasons) for uuid, reasons in known.items()}
    return _all_but(words, "nothing holds the clocks down")


def _slowed(reasons: int | str) -> str:
    if isinstance(reasons, str):
        return reasons
    return ", ".join(words for bit, words in _SLOWED.items() if reasons & bit)


def lanes_are_up(conditions: Conditions) -> Verdict:
    """Judge the PCIe lanes: the most are those of the GPU in this very machine."""
    known = {
        uuid: condition
        for uuid, condition in conditions.items()
        if condition["width"] and condition["most"]
    }
    if not known:
        not_applicable("the driver does not know the GPUs' PCIe lanes")
    words = {
        uuid: ""
        if condition["width"] == condition["most"]
        else f"x{condition['width']} of x{condition['most']}"
        for uuid, condition in known.items()
    }
    return _all_but(words, "all PCIe lanes are up")


def links_are_sound(conditions: Conditions) -> Verdict:
    """Judge the NVLinks: without errors, and as many up as any neighbour has."""
    known = {
        uuid: condition["links"]
        for uuid, condition in conditions.items()
        if condition["links"] is not None
    }
    if not known:
        not_applicable("no GPU of the node has NVLinks that are up")
    most = max(len(links) for links in known.values())
    words = {uuid: ", ".join(_link_words(links, most)) for uuid, links in known.items()}
    return _all_but(words, f"{most} NVLinks of each GPU are up and without errors")


def _link_words(links: list[list[int | str | None]], most: int) -> list[str]:
    words = [f"{len(links)} of {most} links up"] if len(links) < most else []
    for kind, name in enumerate(_LINK_ERRORS):
        counts = [link[kind] for link in links if link[kind]]
        if counts and name not in _HARMLESS:
            words.append(f"{name}: {', '.join(str(count) for count in counts)}")
    return words


def _all_but(words: Mapping[str, str], expected: str) -> Verdict:
    amiss = [f"{uuid}: {text}" for uuid, text in words.items() if text]
    return expected, "; ".join(amiss) or expected
