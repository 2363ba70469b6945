"""Another profile for a while: what pods hold stays, and the node goes back."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from conformance.check import PARTITIONED
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.namespaces import profile_on
from conformance.cluster.pods import PodNamespace
from conformance.disruption.node_scripts import RESTART_KUBELET
from conformance.disruption.observation import (
    PROBE_PERIOD,
    REPORTED,
    Observation,
    counts,
    expect_plan,
    reconfigured_within,
)
from conformance.disruption.restarts import run_script
from conformance.load.idle_holder import idle_holder
from conformance.load.workload_pods import WorkloadPods
from conformance.promise import DevicePromise, NodePromise, plan_under
from conformance.skips import not_applicable, not_made
from divvy.model.api_names import PROFILE_LABEL, State
from divvy.plan import NodePlan


def change_profile(
    target: ClusterUnderTest, workload: WorkloadPods, node: NodePromise
) -> Observation:
    """Let the node follow another profile of the stack file for a while, and go back."""
    observation = Observation()
    _require_no_label(target, node)
    _require_patience(target)
    other = _other_profile(target, node)
    if other is None:
        not_applicable(f"no other profile of the stack file fits {node.name}")
    with profile_on(target.api, node.name, other.profile, run_of(workload.pods)):
        began = time.monotonic()
        followed = workload.pods.until(
            lambda: target.status(node.name).get("profile") == other.profile, REPORTED
        )
        observation.waited(f"the agent reported profile {other.profile}", began)
        observation.words.append("followed" if followed else "not followed")
        # What the pods hold stays as it is; the agent waits for them.
        observation.looked_at(workload)
        workload.pods.until(lambda: _is_settled(target.status(node.name)), PROBE_PERIOD)
        state = target.status(node.name)
        observation.times.append(
            f"with a pod on it: {state.get('state')}, {state.get('reason') or '-'}"
        )
        workload.end_all()
        _expect_other(target, workload.pods, node, other, observation)
    patience = reconfigured_within(node)
    expect_plan(target, workload.pods, node, observation, time.monotonic(), patience)
    return observation


def hold_through_change(
    target: ClusterUnderTest,
    pods: PodNamespace,
    node: NodePromise,
    *,
    init: bool = False,
    privileged: PodNamespace | None = None,
) -> tuple[str, Observation]:
    """Let a change of profile wait for the idle holder of a MIG device, and end the holder.

    With ``init`` an init container holds the device; with ``privileged``, where a pod that does it
    may run, the kubelet restarts meanwhile. Return what must be seen, and what was.
    """
    other, promise = _change_of_mig(target, node)
    observation = Observation()
    with idle_holder(pods, promise, init=init) as holder:
        with profile_on(target.api, node.name, other.profile, run_of(pods)):
            _expect_waiting(target, pods, node, observation)
            if privileged is not None:
                run_script(privileged, node, RESTART_KUBELET, observation, "kubelet")
                _expect_waiting(target, pods, node, observation)
            observation.words.append(holder.look())
            observation.times.append(f"the holder of {promise.resource}: {holder.last_words}")
            holder.end()
            _expect_other(target, pods, node, other, observation)
        patience = reconfigured_within(node)
        expect_plan(target, pods, node, observation, time.monotonic(), patience)
    restarted = [] if privileged is None else ["kubelet back", "the change waits"]
    expected = ["the change waits", *restarted, "the holder has its device"]
    expected += [f"advertised {counts(other.per_node)}", "allocatable as planned"]
    return ", ".join(expected), observation


def kind_to_hold(
    target: ClusterUnderTest, node: NodePromise, promises: Sequence[DevicePromise]
) -> DevicePromise:
    """Return the kind of device that another profile would take away, else the first."""
    other_plan = _other_profile(target, node)
    remaining = other_plan.per_node if other_plan else ()
    lost = (promise for promise in promises if promise.resource not in remaining)
    return next(lost, promises[0])


def expected_of_change(target: ClusterUnderTest, node: NodePromise, undisturbed: str) -> str:
    """Return in words what ``change_profile`` has to see."""
    other = _other_profile(target, node)
    advertised = counts(other.per_node) if other else ""
    return f"followed, {undisturbed}, advertised {advertised}, allocatable as planned"


def _is_settled(status: Mapping[str, Any]) -> bool:
    return status.get("state") == State.READY or "held by" in str(status.get("reason"))


def _other_profile(target: ClusterUnderTest, node: NodePromise) -> NodePlan | None:
    """Return what the node would advertise under the first profile that fits and differs."""
    return next(_other_profiles(target, node), None)


def _other_profiles(target: ClusterUnderTest, node: NodePromise) -> Iterator[NodePlan]:
    for name in target.cluster.profiles:
        if name != node.profile:
            plan = plan_under(target.cluster, node.plan, name)
            if not plan.notes and dict(plan.per_node) != dict(node.plan.per_node):
                yield plan


def _change_of_mig(target: ClusterUnderTest, node: NodePromise) -> tuple[NodePlan, DevicePromise]:
    """Return a profile that takes a kind of MIG device away, and that kind; skip without one."""
    _require_no_label(target, node)
    _require_patience(target)
    own = [device for device in target.devices_of(node) if device.mode in PARTITIONED]
    for other in _other_profiles(target, node):
        for promise in own:
            if promise.resource not in other.per_node:
                return other, promise
    return not_applicable(f"no other profile of the stack file removes a MIG device of {node.name}")


def _require_no_label(target: ClusterUnderTest, node: NodePromise) -> None:
    if PROFILE_LABEL in (target.live(node.name)["metadata"].get("labels") or {}):
        not_made(f"{node.name} has a label {PROFILE_LABEL} already")


def _require_patience(target: ClusterUnderTest) -> None:
    if target.cluster.change.policy == "evict":
        not_applicable("change.policy is evict: no pod is waited for")


def run_of(pods: PodNamespace) -> str:
    """Return the run to which a namespace belongs."""
    return pods.name.rpartition("-")[0]


def _expect_waiting(
    target: ClusterUnderTest, pods: PodNamespace, node: NodePromise, observation: Observation
) -> None:
    waits = pods.until(lambda: "held by" in str(target.status(node.name).get("reason")), REPORTED)
    status = target.status(node.name)
    observation.words.append("the change waits" if waits else "the change does not wait")
    observation.times.append(f"status: {status.get('state')}, {status.get('reason') or '-'}")


def _expect_other(
    target: ClusterUnderTest,
    pods: PodNamespace,
    node: NodePromise,
    other: NodePlan,
    observation: Observation,
) -> None:
    began, wanted = time.monotonic(), dict(other.per_node)
    pods.until(lambda: target.advertised(node.name) == wanted, reconfigured_within(node))
    observation.waited(f"allocatable of {other.profile}, from when its devices were free", began)
    observation.words.append(f"advertised {counts(target.advertised(node.name))}")
