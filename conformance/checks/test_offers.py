"""Checks that advertised devices can be allocated, once, and no others."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.check import EVERY, MIG, SHARED, WHOLE, check
from conformance.checks.verdicts import extra_pod, past_the_scheduler
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.pods import PodNamespace
from conformance.evidence import Evidence
from conformance.fixtures import Fills, Probes, Releases
from conformance.observe.holders import require_free, require_idle
from conformance.observe.identities import visible_devices
from conformance.observe.kubelet_plugins import only_ours, read_plugins
from conformance.observe.numa import hints_are_right, read_numa
from conformance.observe.other_offers import other_offers
from conformance.observe.runtime import driver_devices
from conformance.promise import DevicePromise, NodePromise
from conformance.skips import not_applicable
from divvy.kube.kind import RESOURCE_SLICE

_FIELD = ".resources."


@check(
    "PLUG-03",
    "one pod more than there are devices stays Pending",
    "MUST",
    EVERY,
    "something advertises more devices than the plan: compare with PLUG-02",
)
@pytest.mark.exclusive
def test_one_pod_more_stays_pending(
    target: ClusterUnderTest, fills: Fills, promise: DevicePromise, evidence: Evidence
) -> None:
    filled = fills[promise]
    evidence.add("\n".join(filled.events))
    evidence.require(*extra_pod(filled, promise, target.implementation))


@check(
    "PLUG-06",
    "a full node refuses a pod that bypasses the scheduler",
    "MUST",
    EVERY,
    "the kubelet counts other devices than the plan: compare with PLUG-02",
)
@pytest.mark.exclusive
def test_a_pod_past_the_scheduler_is_refused_on_a_full_node(
    fills: Fills, promise: DevicePromise, evidence: Evidence
) -> None:
    filled = fills[promise]
    evidence.add(filled.forced)
    evidence.require(*past_the_scheduler(filled, promise))


@check(
    "PLUG-04",
    "two replicas for one container are refused",
    "MUST",
    SHARED,
    "set failRequestsGreaterThanOne, or accept that a second replica gives nothing",
)
@pytest.mark.exclusive
def test_two_replicas_for_one_container_are_refused(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise, evidence: Evidence
) -> None:
    assert promise.mode in SHARED
    if not promise.one_per_container:
        not_applicable("the stack file allows several replicas for one container")
    require_free(target, promise)
    outcome = pods.run(promise.node.name, ["true"], promise.resource, count=2, seconds=30)
    evidence.add(outcome)
    word = target.implementation.refusal
    evidence.require(
        f"Failed: {word}", f"{outcome.phase}: {word if word in outcome.reason else outcome.reason}"
    )


@check(
    "PLUG-07",
    "a pod that bypasses the scheduler is served where a device is free",
    "MUST",
    EVERY,
    "see the pod's events, and the agent's log on that node",
)
def test_a_pod_past_the_scheduler_is_served_where_a_device_is_free(
    past_scheduler: Probes, promise: DevicePromise, evidence: Evidence
) -> None:
    evidence.command = "cuda-vector-add, in a pod with `nodeName`"
    outcome = past_scheduler[promise]
    evidence.add(outcome.log)
    passed = outcome.code == 0 and "Test PASSED" in outcome.log
    evidence.require_that(passed, "exit code 0, `Test PASSED`", outcome)


@check(
    "PLUG-05",
    "fractions and requests that are not limits are refused",
    "MUST",
    EVERY,
    "the API server does not validate extended resources: is it a real one?",
)
def test_fractions_and_requests_alone_are_refused(
    pods: PodNamespace, promise: DevicePromise, evidence: Evidence
) -> None:
    name, node = promise.resource, promise.node.name
    bodies: dict[str, dict[str, Any]] = {
        "a fraction": {"limits": {name: "0.5"}},
        "a request without a limit": {"limits": {}, "requests": {name: "1"}},
        "a request that is not the limit": {"limits": {name: "2"}, "requests": {name: "1"}},
    }
    refusals = {what: pods.refuse(node, body) for what, body in bodies.items()}
    evidence.add("\n".join(f"{what}: {refusal}" for what, refusal in refusals.items()))
    # A refusal that names another field is about something else.
    accepted = [what for what, refusal in refusals.items() if _FIELD not in (refusal or "")]
    evidence.require("accepted: nothing", f"accepted: {', '.join(accepted) or 'nothing'}")


@check(
    "PLUG-08",
    "a pod with several devices gets that many distinct ones",
    "MUST",
    (WHOLE, MIG),
    "compare with ISO-03: two devices may be the same one",
)
@pytest.mark.exclusive
def test_a_pod_with_several_devices_gets_distinct_ones(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise, evidence: Evidence
) -> None:
    if promise.count < 2:
        not_applicable("there is one such device")
    require_idle(target, promise)
    seen = []
    wanted = sorted({2, promise.count})
    for count in wanted:
        outcome = pods.run(promise.node.name, ["nvidia-smi", "-L"], promise.resource, count=count)
        evidence.add(outcome.log)
        seen.append(f"{len(set(visible_devices(outcome.log)))} of {count}")
    evidence.require(
        f"different devices: {', '.join(f'{count} of {count}' for count in wanted)}",
        f"different devices: {', '.join(seen)}",
    )


@check(
    "PLUG-09",
    "devices are free again after init containers, restarts, forced deletion, many pods",
    "MUST",
    EVERY,
    "compare the kubelet's list of holders with the pods that are there",
)
@pytest.mark.exclusive
def test_devices_are_free_again_after_whatever_ends(
    releases: Releases, promise: DevicePromise, evidence: Evidence
) -> None:
    evidence.require(*releases[promise])


@check(
    "PLUG-10",
    "no other component offers the same GPUs",
    "SHOULD",
    EVERY,
    "a GPU belongs to one device plugin or DRA driver: remove the other from these nodes",
)
def test_no_other_component_offers_the_same_gpus(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    slices = target.api.find_known(RESOURCE_SLICE)
    live = target.live(node.name)["status"].get("allocatable") or {}
    own_driver = target.implementation.dra_driver
    other = other_offers(node.name, slices, live, node.plan.per_node, own_driver)
    evidence.require("none", "; ".join(other) or "none")


@check(
    "PLUG-11",
    "the kubelet knows the NUMA node of every device",
    "SHOULD",
    EVERY,
    "the Topology Manager aligns pods by it: see numa_node of the GPU's PCI device in /sys",
)
@pytest.mark.enters
def test_the_kubelet_knows_the_numa_node_of_every_device(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    numa = evidence.of_agent(read_numa(target, node.name))
    evidence.add(f"by the bus: {json.dumps(numa.places)}")
    evidence.add(f"by the kubelet: {json.dumps(numa.hints)}")
    devices = sum(device.gpu is not None for device in node.plan.devices)
    evidence.require(*hints_are_right(numa, devices))


@check(
    "PLUG-12",
    "no other device plugin serves the GPUs, or uses Divvy's names",
    "MUST",
    EVERY,
    "remove the other plugin from these nodes: the kubelet hands out what registered last",
)
@pytest.mark.enters
def test_no_other_device_plugin_serves_the_gpus(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    plugins = evidence.of_agent(read_plugins(target, node.name))
    devices = evidence.of_agent(driver_devices(target, node.name))
    evidence.add(f"sockets: {', '.join(plugins.sockets)}")
    resources = {device.resource for device in target.devices_of(node)}
    evidence.require(*only_ours(plugins, resources, devices, target.implementation))
