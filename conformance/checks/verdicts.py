"""Outcomes as pairs of expected and actual, which are equal where a check holds."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from conformance.cluster.pods import Outcome
from conformance.evidence import Verdict
from conformance.implementation import DIVVY, Implementation
from conformance.load.fill import FillResult
from conformance.observe.bare_look import BareLook
from conformance.observe.device_memory import memory_fits
from conformance.observe.identities import cuda_version, driver_version
from conformance.observe.probes import Part
from conformance.promise import DevicePromise
from divvy.live.live_diff import LiveDifference


def extra_pod(
    filled: FillResult, promise: DevicePromise, implementation: Implementation = DIVVY
) -> Verdict:
    """Return what has to become of one pod more than there are devices, and what did."""
    word = implementation.shortage(promise.resource)
    expected = f"{promise.count} pods run, one more is Pending: {word}"
    if filled.extra is None:
        return expected, _not_full(filled, promise)
    why = word if any(word in event for event in filled.events) else filled.extra.reason
    more = f"{filled.extra.phase}: {why or 'no reason'}"
    return expected, f"{filled.running} pods run, one more is {more}"


def past_the_scheduler(filled: FillResult, promise: DevicePromise) -> Verdict:
    """Return what has to become of a pod with `nodeName` on a full node, and what did."""
    expected = f"{promise.count} pods run, one more Failed: no device left"
    if filled.forced is None:
        return expected, _not_full(filled, promise)
    full = (f"OutOf{promise.resource}", "number of devices unavailable")
    reason = filled.forced.reason
    seen = "no device left" if any(word in reason for word in full) else reason
    return expected, f"{filled.running} pods run, one more {filled.forced.phase}: {seen}"


def _not_full(filled: FillResult, promise: DevicePromise) -> str:
    return f"the node was not full: {filled.running} of {promise.count} pods ran"


def sees_nothing(look: BareLook, tell: Callable[[object], None]) -> Verdict:
    """Return what pods without a request have to see, and what they saw."""
    expected, actual = [], []
    for how, outcome in look.outcomes.items():
        tell(f"{how}: {outcome.log}")
        seen = "; ".join(outcome.log.strip().splitlines()) or "nothing seen"
        expected.append(f"{how}: Succeeded, nothing seen")
        actual.append(f"{how}: {outcome.phase}, {seen}")
    if look.numbers is None:
        tell("not tried by number: the cluster admits no pod with the usual rights")
    else:
        tell(look.numbers.log)
        opened = "; ".join(lines_like("named|made", look.numbers.log)) or "nothing opened by number"
        expected.append("Succeeded, nothing opened by number")
        actual.append(f"{look.numbers.phase}, {opened}")
    return "; ".join(expected), "; ".join(actual)


def opens_nothing_by_number(outcome: Outcome) -> Verdict:
    """Judge what a pod with one device could open by trying every device number."""
    if outcome.code != 0:
        return "a pod that tries every number", str(outcome)
    gpus = lines_like(r"named 195:\d+ /dev/nvidia\d+$", outcome.log)
    opened = lines_like("made", outcome.log)
    return (
        "1 GPU by name, nothing by number",
        f"{len(gpus)} GPU by name, {'; '.join(opened) or 'nothing'} by number",
    )


def shows_versions(smi: Part) -> tuple[bool, str, Part]:
    """Judge nvidia-smi's table, as every driver prints it: holds, what is expected, what came."""
    versions = (driver_version(smi.log), cuda_version(smi.log))
    shown = "NVIDIA-SMI" in smi.log and all(versions)
    return smi.code == 0 and shown, "exit code 0, and the versions of the driver and of CUDA", smi


def every_device_burns(filled: FillResult, promise: DevicePromise) -> Verdict:
    """Judge gpu-burn in the pods of a full node."""
    bad = [f"{tenant.name}: {tenant.burn}" for tenant in filled.tenants if not tenant.burns]
    good = len(filled.tenants) - len(bad)
    return f"OK on {promise.count} devices", "; ".join([f"OK on {good} devices", *bad])


def every_device_computes(filled: FillResult, promise: DevicePromise) -> Verdict:
    """Judge cuda-vector-add and the memory in the pods of a full node."""
    bad = [
        f"{tenant.name}: vector-add {tenant.vector_add}, "
        f"memory {tenant.memory_mib or tenant.memory}"
        for tenant in filled.tenants
        if not (tenant.adds and memory_fits(promise, tenant.memory_mib))
    ]
    good = len(filled.tenants) - len(bad)
    return f"{promise.count} devices compute", "; ".join([f"{good} devices compute", *bad])


def one_series_per_pod(pods: Sequence[str], series: Sequence[Mapping[str, str]]) -> Verdict:
    """Judge the series of pods, two of which at least share a device."""
    having = Counter(labels["pod"] for labels in series)
    sharing = Counter(labels["uuid"] for labels in series)
    odd = [f"{pod}: {having[pod]} series" for pod in pods if having[pod] != 1]
    if max(sharing.values(), default=0) < 2:
        odd.append("no two on one device")
    expected = f"{len(pods)} pods with a series each, two or more on one device"
    return expected, "; ".join(odd) or expected


def lines_like(pattern: str, log: str) -> list[str]:
    """Return the lines of a log that begin like a pattern."""
    return [line for line in log.splitlines() if re.match(pattern, line)]


def nodes_amiss(difference: LiveDifference, pool: str | None) -> Iterator[str]:
    """Yield what of a pool's nodes, or with None of GPU nodes in no pool, is not as in the file."""
    for count in difference.counts:
        if count.pool == pool:
            yield f"{count.actual} of {count.expected} nodes exist"
    for node in (*difference.nodes, *difference.unknown_overrides):
        if node.pool != pool:
            continue
        # Of a node that cannot be read nobody knows the pool.
        if problem := node.problem or (node.unavailable if pool is None else ""):
            yield f"{node.node}: {problem}"
        if node.bypass:
            yield f"{node.node}: follows the label {node.bypass}"
