"""Isolation: a pod gets its device, nothing else, and what the guarantee says of it."""

from __future__ import annotations

import re

import pytest

from conformance.catalogue import SHARED, check
from conformance.evidence import Evidence
from conformance.pods import Workplace
from conformance.promise import DevicePromise, NodePromise

# Prints what a container can see of GPUs: device files it can open, CUDA's and NVML's view.
LOOK = """
for node in /dev/nvidia[0-9]* /dev/nvidia-caps/nvidia-cap*; do
  [ -e "$node" ] || continue
  if dd if="$node" of=/dev/null count=0 2>&1 | grep -qv "Operation not permitted"; then
    echo "node $node"
  fi
done
gpu-burn -l 2>/dev/null | sed 's/^/cuda /'
command -v nvidia-smi >/dev/null && nvidia-smi -L 2>/dev/null | sed 's/^/smi /'
env | grep '^NVIDIA_VISIBLE_DEVICES' | sed 's/^/env /'
exit 0
"""
MOST_MIB_OFF = 0.02


@check("ISO-01")
def test_a_pod_without_a_request_sees_no_gpu(
    pods: Workplace, node: NodePromise, evidence: Evidence
) -> None:
    outcome = pods.run(node.name, ["/bin/sh", "-c", LOOK])
    evidence.add(outcome.log)
    seen = outcome.log.strip() or "nothing seen"
    evidence.require("Succeeded, nothing seen", f"{outcome.phase}, {seen}")


@check("ISO-02")
def test_a_pod_sees_its_own_device_only(
    pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    outcome = pods.run(promise.node.name, ["/bin/sh", "-c", LOOK], promise.resource)
    evidence.add(outcome.log)
    seen = {
        "gpus": len(re.findall(r"^node /dev/nvidia\d+$", outcome.log, re.MULTILINE)),
        "caps": len(re.findall(r"^node /dev/nvidia-caps/", outcome.log, re.MULTILINE)),
        "cuda devices": len(re.findall(r"^cuda ID ", outcome.log, re.MULTILINE)),
        "mig devices": len(re.findall(r"^smi   MIG ", outcome.log, re.MULTILINE)),
    }
    is_mig = promise.mode.startswith("mig")
    wanted = {
        "gpus": 1,
        "caps": 2 if is_mig else 0,
        "cuda devices": 1,
        "mig devices": 1 if is_mig else 0,
    }
    evidence.require(wanted, seen)


@check("ISO-03")
@pytest.mark.exclusive
def test_devices_of_running_pods_are_different(
    pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    uuids = _uuids_at_once(pods, promise, evidence)
    evidence.require(f"{promise.count} different devices", f"{len(set(uuids))} different devices")


@check("ISO-04")
@pytest.mark.exclusive
def test_shares_are_of_the_same_devices(
    pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    uuids = _uuids_at_once(pods, promise, evidence)
    counts = sorted(uuids.count(found) for found in set(uuids))
    evidence.require(
        f"{promise.kinds} devices with {promise.device.shares} pods each",
        f"{len(counts)} devices with {' or '.join(map(str, sorted(set(counts))))} pods each",
    )


@check("ISO-05")
@pytest.mark.exclusive
def test_a_mig_device_refuses_more_than_its_slice(
    pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    memory = promise.device.memory_mib or 0
    command = ["mem-hog", "--mib", str(int(memory * 1.1)), "--chunk", "256"]
    evidence.command = " ".join(command)
    outcome = pods.run(promise.node.name, command, promise.resource)
    evidence.add(outcome.log)
    seen = f"{outcome} {outcome.log}"
    evidence.require_that(outcome.code == 12, "exit code 12 and OUT_OF_MEMORY", seen)


@check("ISO-06")
def test_memory_is_what_the_plan_says(
    pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    outcome = pods.run(promise.node.name, ["mem-hog", "--mib", "1"], promise.resource)
    evidence.add(outcome.log)
    found = re.search(r"device: (\d+) MiB total", outcome.log)
    total = int(found.group(1)) if found else 0
    planned = promise.device.memory_mib or 0
    evidence.require_that(
        abs(total - planned) <= planned * MOST_MIB_OFF, f"{planned} MiB within 2 %", f"{total} MiB"
    )


@check("PLUG-03")
@pytest.mark.exclusive
def test_one_pod_more_stays_pending(
    pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    held = [
        pods.start(promise.node.name, ["sleep", "300"], promise.resource)
        for _ in range(promise.count)
    ]
    try:
        pods.until(lambda: all(pods.phase(name) == "Running" for name in held), 60)
        extra = pods.start(promise.node.name, ["true"], promise.resource)
        held.append(extra)
        pods.until(lambda: bool(pods.events(extra)), 10)
        events = pods.events(extra)
        evidence.add(events)
        insufficient = any(f"Insufficient {promise.resource}" in event for event in events)
        evidence.require(
            "Pending, FailedScheduling: Insufficient",
            f"{pods.phase(extra)}, {'FailedScheduling: Insufficient' if insufficient else events}",
        )
    finally:
        for name in held:
            pods.remove(name)


@check("PLUG-04")
@pytest.mark.exclusive
def test_two_shares_for_one_container_are_refused(
    pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    assert promise.mode in SHARED
    outcome = pods.run(promise.node.name, ["true"], promise.resource, count=2, seconds=30)
    evidence.require_that(
        outcome.phase == "Failed" and "at most 1 per container" in outcome.reason,
        "Failed: at most 1 per container",
        outcome,
    )


@check("PLUG-05")
def test_fractions_and_requests_alone_are_refused(
    pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    name, node = promise.resource, promise.node.name
    refusals = {
        "a fraction": pods.refuse(node, {"limits": {name: "0.5"}}),
        "a request without a limit": pods.refuse(node, {"limits": {}, "requests": {name: "1"}}),
        "a request that is not the limit": pods.refuse(
            node, {"limits": {name: "2"}, "requests": {name: "1"}}
        ),
    }
    evidence.add(refusals)
    accepted = [what for what, refusal in refusals.items() if refusal is None]
    evidence.require([], accepted)


def _uuids_at_once(pods: Workplace, promise: DevicePromise, evidence: Evidence) -> list[str]:
    """Fill a resource, and return which device each pod has while all of them run."""
    script = "cuda-vector-add; sleep 300"
    held = [
        pods.start(promise.node.name, ["/bin/sh", "-c", script], promise.resource)
        for _ in range(promise.count)
    ]
    try:
        together = pods.until(
            lambda: all(
                pods.phase(name) == "Running" and "Done" in pods.log(name) for name in held
            ),
            120,
        )
        phases = [pods.phase(name) for name in held]
        uuids = [uuid for name in held for uuid in re.findall(r"UUID: (\S+)\)", pods.log(name))]
        evidence.add(f"phases {phases}; devices {uuids}")
        assert together, f"not all {promise.count} pods run at the same time: {phases}"
        return uuids
    finally:
        for name in held:
            pods.remove(name)
