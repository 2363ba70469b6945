"""Isolation: a pod gets its device, nothing else, and what the guarantee says of it."""

from __future__ import annotations

import re

import pytest

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.fixtures import Bare, Fills, Overdraws, Probes
from conformance.probes import part
from conformance.promise import DevicePromise, NodePromise

MOST_MIB_OFF = 0.02
_TOTAL = re.compile(r"\d+MiB\s*/\s*(\d+)MiB")


@check("ISO-01")
def test_a_pod_without_a_request_sees_no_gpu(
    bare: Bare, node: NodePromise, evidence: Evidence
) -> None:
    outcome, tried = bare[node]
    evidence.add(outcome.log)
    seen = "; ".join(outcome.log.strip().splitlines()) or "nothing seen"
    expected, actual = "Succeeded, nothing seen", f"{outcome.phase}, {seen}"
    if tried is None:
        evidence.add("not tried by number: the cluster admits no pod with the usual rights")
    else:
        evidence.add(tried.log)
        opened = "; ".join(_lines("named|made", tried.log)) or "nothing opened by number"
        expected += "; Succeeded, nothing opened by number"
        actual += f"; {tried.phase}, {opened}"
    evidence.require(expected, actual)


@check("ISO-02")
def test_a_pod_sees_its_own_device_only(
    probes: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    found = part(probes[promise], "look")
    evidence.add(found.log)
    if found.code is None:
        evidence.require("a pod that looks around", str(found))
    is_mig = promise.mode.startswith("mig")
    patterns = {
        "GPUs": (r"^node /dev/nvidia\d+$", 1),
        "MIG capabilities": (r"^node /dev/nvidia-caps/", 2 * is_mig),
        "CUDA devices": (r"^cuda ID ", 1),
        "MIG devices": (r"^smi   MIG ", 1 * is_mig),
    }
    wanted = {name: count for name, (_, count) in patterns.items()}
    seen = {
        name: len(re.findall(pattern, found.log, re.MULTILINE))
        for name, (pattern, _) in patterns.items()
    }
    evidence.require(_words(wanted), _words(seen))


@check("ISO-07")
def test_a_pod_opens_no_device_by_its_number(
    openings: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    outcome = openings[promise]
    evidence.command = "open-devices"
    evidence.add(outcome.log)
    if outcome.code != 0:
        evidence.require("a pod that tries every number", str(outcome))
    gpus = _lines(r"named 195:\d+ /dev/nvidia\d+$", outcome.log)
    made = _lines("made", outcome.log)
    evidence.require(
        "1 GPU by name, nothing by number",
        f"{len(gpus)} GPU by name, {'; '.join(made) or 'nothing'} by number",
    )


@check("ISO-08")
def test_nvidia_smi_shows_what_the_guarantee_says(
    probes: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    found = part(probes[promise], "nvidia-smi")
    evidence.command = "nvidia-smi"
    evidence.add(found.log)
    _, _, slices = found.log.partition("MIG devices:")
    is_mig = promise.mode.startswith("mig")
    sizes = [int(one) for one in _TOTAL.findall(slices if is_mig else found.log)]
    planned = promise.device.memory_mib or 0
    # Below a MIG device's memory stands its window for the processor: not the first line, so left.
    shown = sizes[:1]
    close = shown and abs(shown[0] - planned) <= planned * MOST_MIB_OFF
    what = "a MIG device" if is_mig else "a whole card"
    seen = f"{what} of {shown[0]} MiB" if shown else str(found)
    evidence.require_that(close, f"{what} of {planned} MiB within 2 %", seen)


@check("ISO-03")
@pytest.mark.exclusive
def test_devices_of_running_pods_are_different(
    fills: Fills, promise: DevicePromise, evidence: Evidence
) -> None:
    filled = fills[promise]
    evidence.add(f"phases {filled.phases}; devices {filled.devices}")
    evidence.require(
        f"{promise.count} pods at once on {promise.count} devices",
        f"{filled.phases.count('Running')} pods at once on {len(set(filled.devices))} devices",
    )


@check("ISO-04")
@pytest.mark.exclusive
def test_shares_are_of_the_same_devices(
    fills: Fills, promise: DevicePromise, evidence: Evidence
) -> None:
    filled = fills[promise]
    evidence.add(f"phases {filled.phases}; devices {filled.devices}")
    each = sorted({filled.devices.count(found) for found in filled.devices})
    evidence.require(
        f"{promise.count} pods at once, {promise.device.shares} on each of {promise.kinds} devices",
        f"{filled.phases.count('Running')} pods at once, {' or '.join(map(str, each)) or 0} on "
        f"each of {len(set(filled.devices))} devices",
    )


@check("ISO-05")
@pytest.mark.exclusive
def test_a_mig_device_refuses_more_than_its_slice(
    overdraws: Overdraws, promise: DevicePromise, evidence: Evidence
) -> None:
    found = overdraws[promise]
    evidence.command = " ".join(found.command)
    evidence.add(found.greedy.log)
    said = found.greedy.log.strip().splitlines()[-1:] or [str(found.greedy)]
    undisturbed, neighbour = True, "no neighbour"
    if found.neighbour is not None:
        evidence.add(found.neighbour.log)
        undisturbed = "GPU 0: OK" in found.neighbour.log
        neighbour = "neighbour OK" if undisturbed else "neighbour disturbed"
    evidence.require_that(
        found.greedy.code == 12 and undisturbed,
        "exit code 12 (out of memory), the neighbour's burn OK",
        f"exit code {found.greedy.code}, {said[0]}; {neighbour}",
    )


@check("ISO-06")
def test_memory_is_what_the_plan_says(
    probes: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    found = part(probes[promise], "memory")
    evidence.add(found.log)
    said = re.search(r"device: (\d+) MiB total", found.log)
    planned = promise.device.memory_mib or 0
    close = said is not None and abs(int(said.group(1)) - planned) <= planned * MOST_MIB_OFF
    evidence.require_that(
        close, f"{planned} MiB within 2 %", f"{said.group(1)} MiB" if said else found
    )


def _lines(pattern: str, log: str) -> list[str]:
    return [line for line in log.splitlines() if re.match(pattern, line)]


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
