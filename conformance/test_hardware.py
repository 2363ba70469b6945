"""What only hardware can show: what neighbours on the same GPU cost."""

from __future__ import annotations

import pytest

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.fixtures import Crowds
from conformance.neighbours import BURN, COPY, at_once, mig_keeps, shares_keep
from conformance.pods import Workplace
from conformance.promise import DevicePromise
from conformance.site import Site
from conformance.tenants import require_idle_node

pytestmark = pytest.mark.exclusive


@check("HW-01")
def test_neighbours_leave_a_mig_device_its_compute(
    crowds: Crowds, promise: DevicePromise, evidence: Evidence
) -> None:
    _keeps(crowds, promise, evidence, BURN, "Gflop/s")


@check("HW-02")
def test_neighbours_leave_a_mig_device_its_bandwidth(
    crowds: Crowds, promise: DevicePromise, evidence: Evidence
) -> None:
    _keeps(crowds, promise, evidence, COPY, "GB/s")


@check("HW-03")
def test_a_broken_program_leaves_neighbours_alone(
    site: Site, pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    require_idle_node(site, promise.node)
    kinds = [one for one in site.devices if one.node.name == promise.node.name]
    kinds = [one for one in kinds if one.mode == promise.mode]
    evidence.command = "bad-access beside gpu-burn"
    found = at_once(pods, kinds, BURN, promise, ["bad-access"])
    broken = found.pop("")[0]
    burns = [outcome for own in found.values() for outcome in own]
    evidence.add(broken.log)
    evidence.add("\n".join(outcome.log.strip().rpartition("\n")[2] for outcome in burns))
    well = sum(outcome.code == 0 for outcome in burns)
    if not burns:
        pytest.skip("it has no neighbour")
    evidence.require(
        f"the broken program ended with an illegal address, {len(burns)} of {len(burns)} burns OK",
        f"the broken program ended with {'an illegal address' if broken.code == 0 else broken}, "
        f"{well} of {len(burns)} burns OK",
    )


@check("HW-04")
def test_shares_under_load_all_advance(
    crowds: Crowds, promise: DevicePromise, evidence: Evidence
) -> None:
    figures = crowds.of(promise, BURN)
    evidence.command = " ".join(BURN)
    evidence.add("\n".join(figures.logs))
    evidence.require_that(*shares_keep(figures, promise.device.shares))


def _keeps(
    crowds: Crowds,
    promise: DevicePromise,
    evidence: Evidence,
    command: tuple[str, ...],
    unit: str,
) -> None:
    figures = crowds.of(promise, command)
    evidence.command = " ".join(command)
    evidence.add("\n".join(figures.logs))
    evidence.require_that(*mig_keeps(figures, unit))
