"""Limited shares: the limiter refuses, shows the share, lets work; what goes round is noticed."""

from __future__ import annotations

import re

import pytest

from conformance.check import BY_MPS, LIMITED, PARTITIONED, check
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.pods import PodNamespace
from conformance.evidence import Evidence
from conformance.fixtures import Probes
from conformance.load import mps_share
from conformance.load.share_limit import ask, go_past, judge_requests
from conformance.load.training import judge_training, side_by_side, train
from conformance.observe.device_memory import memory_fits, share_sizes
from conformance.observe.holders import require_idle
from conformance.observe.probes import part, visible_memory
from conformance.promise import DevicePromise
from conformance.skips import not_made
from divvy.model.api_names import Mode
from divvy.model.sharing import ALL_COMPUTE


@check(
    "ISO-10",
    "a share refuses memory beyond its limit, whichever processes ask",
    "MUST",
    LIMITED,
    "the pod may have the driver's own library: compare with ISO-11",
    cncf=("gpu_sharing",),
)
@pytest.mark.exclusive
def test_a_share_refuses_memory_beyond_its_limit(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise, evidence: Evidence
) -> None:
    require_idle(target, promise)
    outcome = ask(pods, promise)
    evidence.command = "mem-hog"
    evidence.add(outcome.log)
    evidence.require(*judge_requests(share_sizes(promise), outcome.log))


@check(
    "ISO-11",
    "total memory, free memory and nvidia-smi all show the share",
    "MUST",
    LIMITED,
    "the limiter's libraries must come before the driver's: see docs/limiter.md",
    cncf=("gpu_sharing",),
)
def test_everything_shows_the_share(
    probes: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    memory_by_tool = visible_memory(probes[promise], is_mig=promise.mode in PARTITIONED)
    evidence.add(probes[promise].log)
    sizes = [mib for mib in memory_by_tool.values() if mib is not None]
    # Some tools print megabytes of a million bytes: equal but for rounding.
    equal = len(sizes) == len(memory_by_tool) and max(sizes) - min(sizes) <= 1
    fits = equal and memory_fits(promise, sizes[0])
    words = ", ".join(f"{what}: {mib} MiB" for what, mib in memory_by_tool.items())
    expected = (
        f"{', '.join(memory_by_tool)}: all {promise.device.memory_mib} MiB, the share's limit"
    )
    evidence.require_that(fits, expected, words)


@check(
    "ISO-15",
    "MPS refuses a process more memory than its share, and shows what is left",
    "MUST",
    (Mode.MPS,),
    "the container's CUDA_MPS_PINNED_DEVICE_MEM_LIMIT must be the "
    "share's: see `kubectl get pod -o yaml`, and `divvy status`. With driver 615 or newer it "
    "is asked for without that: `nvidia-cuda-mps-control -p 3 namespace list` on the node",
    cncf=("gpu_sharing",),
)
@pytest.mark.exclusive
def test_mps_refuses_memory_beyond_a_share(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise, evidence: Evidence
) -> None:
    require_idle(target, promise)
    outcome = mps_share.ask(pods, promise)
    evidence.command = "mem-hog"
    evidence.add(outcome.log)
    evidence.require(*mps_share.judge_memory(share_sizes(promise), outcome.log))
    threads = promise.mps.threads if promise.mps else None
    if mps_share.has_namespaces(promise) and threads != ALL_COMPUTE:
        evidence.require(*mps_share.judge_sms(promise, outcome.log))


@check(
    "ISO-16",
    "a process by MPS computes on its part of the SMs",
    "MUST",
    BY_MPS,
    "the container's CUDA_MPS_ACTIVE_THREAD_PERCENTAGE must be the share's; is the process "
    "a client of the daemon at all?",
    cncf=("gpu_sharing",),
)
def test_a_process_by_mps_has_its_part_of_the_sms(
    probes: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    memory = part(probes[promise], "memory")
    evidence.command = "mem-hog"
    evidence.add(memory.log)
    evidence.require(*mps_share.judge_sms(promise, memory.log))


@check(
    "WORK-06",
    "a framework trains within its share, beside others on the GPU",
    "MUST",
    LIMITED,
    "take a GPU that computes wrongly out of service; for memory errors see ISO-11",
    cncf=("gpu_sharing",),
)
@pytest.mark.exclusive
def test_a_framework_trains_within_its_share(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise, evidence: Evidence
) -> None:
    require_idle(target, promise)
    outcomes = train(pods, promise)
    evidence.command = "train, in pods side by side"
    for outcome in outcomes:
        evidence.add(outcome.log)
    evidence.require(*judge_training(promise, outcomes))
    if not side_by_side(outcomes):
        not_made("the pods did not train at the same time")


@check(
    "ISO-12",
    "use that bypasses the limiter is noticed",
    "MUST",
    LIMITED,
    "the agent's memory watch reads the host's processes: see its log",
)
@pytest.mark.exclusive
@pytest.mark.enters
def test_what_goes_round_the_limiter_is_noticed(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise, evidence: Evidence
) -> None:
    require_idle(target, promise)
    past = go_past(target, pods, promise)
    evidence.command = "mem-hog with the driver's own library"
    evidence.add(past.log)
    if not re.search(r"^allocated .* OK$", past.log, re.MULTILINE):
        not_made("no test program bypassed the limiter")
    over = "no pod" if past.over_mib is None else f"the pod, {past.over_mib:g} MiB above its limit"
    evidence.require_that(past.over_mib, "the metrics name the pod", f"the metrics name {over}")
