"""Checks that only hardware can pass: the cost of neighbours on the same GPU."""

from __future__ import annotations

import pytest

from conformance.check import LIMITED, MIG, SHARED, check
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.pods import PodNamespace
from conformance.evidence import Evidence
from conformance.fixtures import Contention
from conformance.load.neighbours import (
    BURN,
    COPY,
    PART_KEEPS,
    at_once,
    fair_parts,
    mig_keeps,
    replicas_keep,
)
from conformance.observe.holders import require_idle_node
from conformance.promise import DevicePromise
from conformance.skips import not_applicable

pytestmark = pytest.mark.exclusive


@check(
    "HW-01",
    "neighbours leave a MIG device its compute",
    "SHOULD",
    (MIG,),
    "look for a power or clock limit: `nvidia-smi -q -d PERFORMANCE`",
    needs_hardware=True,
)
def test_neighbours_leave_a_mig_device_its_compute(
    contention: Contention, promise: DevicePromise, evidence: Evidence
) -> None:
    _keeps(contention, promise, evidence, BURN, "Gflop/s")


@check(
    "HW-02",
    "neighbours leave a MIG device its memory bandwidth",
    "SHOULD",
    (MIG,),
    "look for a power or clock limit: `nvidia-smi -q -d PERFORMANCE`",
    needs_hardware=True,
)
def test_neighbours_leave_a_mig_device_its_bandwidth(
    contention: Contention, promise: DevicePromise, evidence: Evidence
) -> None:
    _keeps(contention, promise, evidence, COPY, "GB/s")


@check(
    "HW-03",
    "a broken program in one MIG device leaves its neighbours alone",
    "SHOULD",
    (MIG,),
    "see the kernel's log for the XID, and the driver's release notes",
    needs_hardware=True,
)
def test_a_broken_program_leaves_neighbours_alone(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise, evidence: Evidence
) -> None:
    require_idle_node(target, promise.node)
    kinds = [device for device in target.devices_of(promise.node) if device.mode == promise.mode]
    if sum(kind.count for kind in kinds) < 2:
        not_applicable("it has no neighbour")
    evidence.command = "bad-access beside gpu-burn"
    result = at_once(pods, kinds, BURN, promise, ["bad-access"])
    assert result.other is not None
    burns = [log for own in result.logs.values() for log in own]
    evidence.add(result.other.log)
    evidence.add("\n".join(log.strip().rpartition("\n")[2] for log in burns))
    broken = "an illegal address" if result.other.code == 0 else result.other
    evidence.require(
        f"the broken program ended with an illegal address, {len(burns)} of {len(burns)} burns OK",
        f"the broken program ended with {broken}, "
        f"{len(burns) - result.errors} of {len(burns)} burns OK",
    )


@check(
    "HW-04",
    "all replicas of a device make progress under full load",
    "SHOULD",
    SHARED,
    "time-slicing gives no fixed share: use MIG where one is needed",
    needs_hardware=True,
)
def test_shares_under_load_all_advance(
    contention: Contention, promise: DevicePromise, evidence: Evidence
) -> None:
    figures = contention.of(promise, BURN)
    evidence.command = " ".join(BURN)
    evidence.add("\n".join(figures.logs))
    evidence.require_that(*replicas_keep(figures, fair_parts(promise)))


@check(
    "HW-05",
    "shares with `compute` get their parts of the GPU's time",
    "SHOULD",
    LIMITED,
    "see `divvy_share_waited_seconds` and `divvy_share_gate_opened` of the agent",
    needs_hardware=True,
)
def test_shares_get_their_parts_of_the_compute_time(
    contention: Contention, promise: DevicePromise, evidence: Evidence
) -> None:
    if promise.compute is None:
        not_applicable("its profile leaves `compute` out: containers are scheduled without limits")
    figures = contention.of(promise, BURN)
    evidence.command = " ".join(BURN)
    evidence.add("\n".join(figures.logs))
    evidence.require_that(*replicas_keep(figures, fair_parts(promise), PART_KEEPS))


def _keeps(
    contention: Contention,
    promise: DevicePromise,
    evidence: Evidence,
    command: tuple[str, ...],
    unit: str,
) -> None:
    figures = contention.of(promise, command)
    evidence.command = " ".join(command)
    evidence.add("\n".join(figures.logs))
    evidence.measure(unit, figures.alone)
    evidence.require_that(*mig_keeps(figures, unit))
