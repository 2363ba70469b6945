"""Isolation: a pod gets its device, nothing else, and what the guarantee says of it."""

from __future__ import annotations

import re

import pytest

from conformance.check import BY_MPS, EVERY, LIMITED, MIG, PARTITIONED, SHARED, WHOLE, check
from conformance.checks.verdicts import opens_nothing_by_number, sees_nothing
from conformance.evidence import Evidence
from conformance.fixtures import Allocations, Bare, Fills, Overcommits, Probes
from conformance.load.overcommit import refuses_beyond
from conformance.observe.device_memory import allowed_mib, memory_fits
from conformance.observe.host_mounts import host_mounts, of_mps, of_one_share
from conformance.observe.probes import device_mib, part, smi_total
from conformance.observe.sibling import sibling_sees_nothing
from conformance.promise import DevicePromise, NodePromise
from conformance.skips import not_applicable
from divvy.model.api_names import CDI_FILE, CDI_FOLDER


@check(
    "ISO-01",
    "a pod without a request sees no GPU, whatever it sets",
    "MUST",
    EVERY,
    "the NVIDIA runtime may be the default and read NVIDIA_VISIBLE_DEVICES: use CDI",
    cncf=("secure_accelerator_access",),
)
def test_a_pod_without_a_request_sees_no_gpu(
    bare: Bare, node: NodePromise, evidence: Evidence
) -> None:
    evidence.require(*sees_nothing(bare[node], evidence.add))


@check(
    "ISO-02",
    "a pod sees its own device and no other",
    "MUST",
    EVERY,
    f"compare {CDI_FOLDER}/{CDI_FILE} with the devices in the pod",
    cncf=("secure_accelerator_access",),
)
def test_a_pod_sees_its_own_device_only(
    probes: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    look = part(probes[promise], "look")
    evidence.add(look.log)
    if look.code is None:
        evidence.require("a pod that looks around", str(look))
    is_mig = promise.mode.startswith("mig")
    patterns = {
        "GPUs": (r"^node /dev/nvidia\d+$", 1),
        "MIG capabilities": (r"^node /dev/nvidia-caps/", 2 * is_mig),
        "CUDA devices": (r"^cuda ID ", 1),
        "MIG devices": (r"^smi   MIG ", 1 * is_mig),
    }
    wanted = {name: count for name, (_, count) in patterns.items()}
    seen = {
        name: len(re.findall(pattern, look.log, re.MULTILINE))
        for name, (pattern, _) in patterns.items()
    }
    evidence.require(_words(wanted), _words(seen))


@check(
    "ISO-14",
    "another container of a pod with a device sees no GPU",
    "MUST",
    EVERY,
    "does a webhook, or the container runtime, give devices to every container of a pod?",
    cncf=("secure_accelerator_access",),
)
def test_another_container_of_the_pod_sees_no_gpu(
    siblings: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    evidence.add(siblings[promise].log)
    evidence.require(*sibling_sees_nothing(siblings[promise]))


@check(
    "ISO-13",
    "a pod sees the very device that the kubelet allocated to it",
    "MUST",
    EVERY,
    f"compare {CDI_FOLDER}/{CDI_FILE} with the devices that nvidia-smi lists on the node",
    cncf=("secure_accelerator_access",),
)
@pytest.mark.enters
def test_a_pod_sees_the_device_that_it_was_allocated(
    allocations: Allocations, promise: DevicePromise, evidence: Evidence
) -> None:
    evidence.add("the kubelet's own list is read on its socket in the agent's pod")
    evidence.require(*allocations[promise])


@check(
    "ISO-07",
    "a pod opens no device by its number, with the usual rights",
    "MUST",
    EVERY,
    "the container runtime must confine devices by control group: is the pod privileged?",
    cncf=("secure_accelerator_access",),
)
def test_a_pod_opens_no_device_by_its_number(
    openings: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    outcome = openings[promise]
    evidence.command = "open-devices"
    evidence.add(outcome.log)
    evidence.require(*opens_nothing_by_number(outcome))


@check(
    "ISO-08",
    "nvidia-smi shows a MIG device's slice, a limited share, else the whole card",
    "SHOULD",
    EVERY,
    "compare with ISO-02; drivers differ by a few MiB",
)
def test_nvidia_smi_shows_what_the_guarantee_says(
    probes: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    if promise.node.plan.gpus[0].model.memory_of_system:
        not_applicable("its driver shows no memory of this GPU, which uses the node's")
    smi = part(probes[promise], "nvidia-smi")
    evidence.command = "nvidia-smi"
    evidence.add(smi.log)
    is_mig = promise.mode.startswith("mig")
    size = smi_total(smi.log, is_mig=is_mig)
    planned = promise.device.memory_mib or 0
    close = memory_fits(promise, size)
    what = "a MIG device" if is_mig else "a whole card"
    if promise.mode in LIMITED:
        what = "a share"
    seen = str(smi) if size is None else f"{what} of {size} MiB"
    evidence.require_that(close, f"{what} of {planned} MiB within {_deviation(promise)}", seen)


@check(
    "ISO-09",
    "nothing of the host's is writable in a pod with a device",
    "MUST",
    EVERY,
    "each mount of /var/run/cdi/divvy.gpu-gpu.json is `ro`; does something else inject too?",
    cncf=("secure_accelerator_access",),
)
def test_nothing_of_the_hosts_is_writable(
    mountings: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    outcome = mountings[promise]
    evidence.command = "/proc/self/mountinfo, and a try to write to each mount"
    evidence.add(outcome.log)
    mounts = host_mounts(outcome.log)
    if outcome.code != 0 or not mounts:
        evidence.require("a pod that sees the driver's files", str(outcome))
    by_design = of_one_share(mounts) if promise.mode in LIMITED else []
    by_design += of_mps(mounts) if promise.mode in BY_MPS else []
    writable = [mount.place for mount in mounts if mount.writable and mount not in by_design]
    evidence.require(
        "mounts from the host: none writable",
        f"mounts from the host: {', '.join(writable) or 'none'} writable",
    )


@check(
    "ISO-03",
    "devices of pods running at the same time are different ones",
    "MUST",
    (WHOLE, MIG),
    "two plugins may serve one GPU: look for a second agent",
)
@pytest.mark.exclusive
def test_devices_of_running_pods_are_different(
    fills: Fills, promise: DevicePromise, evidence: Evidence
) -> None:
    filled = fills[promise]
    evidence.add(f"devices {filled.devices}")
    evidence.require(
        f"{promise.count} pods at once on {promise.count} devices",
        f"{filled.running} pods at once on {len(set(filled.devices))} devices",
    )


@check(
    "ISO-04",
    "replicas of one device are the same device, all running at the same time",
    "MUST",
    SHARED,
    "the placement policy spreads or packs replicas; see `placement`",
    cncf=("gpu_sharing",),
)
@pytest.mark.exclusive
def test_replicas_are_of_the_same_devices(
    fills: Fills, promise: DevicePromise, evidence: Evidence
) -> None:
    filled = fills[promise]
    evidence.add(f"devices {filled.devices}")
    counts = sorted({filled.devices.count(device) for device in filled.devices})
    evidence.require(
        f"{promise.count} pods at once, {promise.device.shares} on each of {promise.kinds} devices",
        f"{filled.running} pods at once, {' or '.join(map(str, counts)) or 0} on "
        f"each of {len(set(filled.devices))} devices",
    )


@check(
    "ISO-05",
    "a MIG device refuses memory beyond its slice",
    "MUST",
    PARTITIONED,
    "the pod may see the whole GPU: compare with ISO-02",
    cncf=("gpu_sharing",),
)
@pytest.mark.exclusive
def test_a_mig_device_refuses_more_than_its_slice(
    overcommits: Overcommits, promise: DevicePromise, evidence: Evidence
) -> None:
    overcommit = overcommits[promise]
    evidence.command = " ".join(overcommit.command)
    evidence.add(overcommit.greedy.log)
    evidence.add(overcommit.words)
    evidence.require_that(*refuses_beyond(promise.device.memory_mib or 0, overcommit))


@check(
    "ISO-06",
    "a device's memory is what the plan says",
    "MUST",
    EVERY,
    "the plan's figures come from the model's data sheet; drivers differ by a few MiB",
)
def test_memory_is_what_the_plan_says(
    probes: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    memory = part(probes[promise], "memory")
    evidence.add(memory.log)
    mib = device_mib(memory.log)
    planned = promise.device.memory_mib or 0
    evidence.require_that(
        memory_fits(promise, mib),
        f"{planned} MiB within {_deviation(promise)}",
        memory if mib is None else f"{mib} MiB",
    )


def _deviation(promise: DevicePromise) -> str:
    return f"{allowed_mib(promise):.0f} MiB"


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items())
