"""What is offered can be had, once, and no more."""

from __future__ import annotations

import pytest

from conformance.catalogue import SHARED, check
from conformance.evidence import Evidence
from conformance.fixtures import Fills, Probes
from conformance.pods import Workplace
from conformance.promise import DevicePromise
from conformance.site import Site
from conformance.tenants import require_free


@check("PLUG-03")
@pytest.mark.exclusive
def test_one_pod_more_stays_pending(
    fills: Fills, promise: DevicePromise, evidence: Evidence
) -> None:
    filled = fills[promise]
    evidence.add("\n".join(filled.events))
    word = f"Insufficient {promise.resource}"
    why = word if any(word in event for event in filled.events) else filled.extra.reason
    evidence.require(f"Pending: {word}", f"{filled.extra.phase}: {why or 'no reason'}")


@check("PLUG-06")
@pytest.mark.exclusive
def test_a_pod_past_the_scheduler_is_refused_on_a_full_node(
    fills: Fills, promise: DevicePromise, evidence: Evidence
) -> None:
    forced = fills[promise].forced
    evidence.add(forced)
    full = (f"OutOf{promise.resource}", "number of devices unavailable")
    seen = "no device left" if any(word in forced.reason for word in full) else forced.reason
    evidence.require("Failed: no device left", f"{forced.phase}: {seen}")


@check("PLUG-04")
@pytest.mark.exclusive
def test_two_shares_for_one_container_are_refused(
    site: Site, pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    assert promise.mode in SHARED
    if not promise.one_per_container:
        pytest.skip("the stack file allows several shares for one container")
    require_free(site, promise)
    outcome = pods.run(promise.node.name, ["true"], promise.resource, count=2, seconds=30)
    evidence.add(outcome)
    word = "at most 1 per container"
    evidence.require(
        f"Failed: {word}", f"{outcome.phase}: {word if word in outcome.reason else outcome.reason}"
    )


@check("PLUG-07")
def test_a_pod_past_the_scheduler_is_served_where_a_device_is_free(
    past_scheduler: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    evidence.command = "cuda-vector-add, in a pod with `nodeName`"
    outcome = past_scheduler[promise]
    evidence.add(outcome.log)
    passed = outcome.code == 0 and "Test PASSED" in outcome.log
    evidence.require_that(passed, "exit code 0, `Test PASSED`", outcome)


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
    evidence.add("\n".join(f"{what}: {refusal}" for what, refusal in refusals.items()))
    accepted = [what for what, refusal in refusals.items() if refusal is None]
    evidence.require("accepted: nothing", f"accepted: {', '.join(accepted) or 'nothing'}")
