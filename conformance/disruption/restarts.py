"""Restarts of the agent, the kubelet, the container runtime and systemd, under running pods."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.pods import PodNamespace
from conformance.disruption.node_scripts import (
    CANNOT,
    DONE,
    RELOAD_SYSTEMD,
    RESTART_KUBELET,
    RESTART_RUNTIME_AND_KUBELET,
)
from conformance.disruption.observation import (
    BACK,
    RECONFIGURE,
    Observation,
    expect_heartbeat,
    expect_plan,
    expect_service,
)
from conformance.load.workload_pods import WorkloadPods
from conformance.promise import NodePromise
from conformance.skips import NotApplicable, not_applicable
from divvy.kube.kind import POD
from divvy.model.conditions import is_ready


def restart_agent(
    target: ClusterUnderTest, workload: WorkloadPods, node: NodePromise
) -> Observation:
    """Delete the agent's pod; its DaemonSet makes another."""
    observation = Observation()
    agent = target.agent(node.name)
    if agent is None:
        return Observation(["no agent on the node"])
    old = agent["metadata"]
    target.api.delete(POD, old["name"], namespace=old["namespace"], grace_period=1)
    began = time.monotonic()
    _expect_new_agent(target, workload, node, old, observation, began, BACK)
    _expect_recovery(target, workload, node, observation, began)
    return observation


def restart_kubelet(
    target: ClusterUnderTest, workload: WorkloadPods, node: NodePromise, privileged: PodNamespace
) -> Observation:
    """Restart the kubelet, then have it start a pod on every kind of device."""
    observation = Observation()
    began = time.monotonic()
    before = target.heartbeat(node.name)
    run_script(privileged, node, RESTART_KUBELET, observation, "kubelet")
    expect_heartbeat(target, workload.pods, node, before, observation, began)
    _expect_recovery(target, workload, node, observation, began)
    return observation


def restart_all(
    target: ClusterUnderTest, workload: WorkloadPods, node: NodePromise, privileged: PodNamespace
) -> Observation:
    """Restart runtime and kubelet and delete the agent's pod, all at once, as a reboot does."""
    observation = Observation()
    agent = target.agent(node.name)
    if agent is None:
        return Observation(["no agent on the node"])
    began = time.monotonic()
    before = target.heartbeat(node.name)
    old = agent["metadata"]
    target.api.delete(POD, old["name"], namespace=old["namespace"], grace_period=0)
    try:
        run_script(
            privileged, node, RESTART_RUNTIME_AND_KUBELET, observation, "kubelet and runtime"
        )
    except NotApplicable:
        # The checks that come next find the agent that this one has ended.
        _expect_new_agent(target, workload, node, old, observation, began, RECONFIGURE)
        expect_plan(target, workload.pods, node, observation, began)
        raise
    _expect_new_agent(target, workload, node, old, observation, began, RECONFIGURE)
    expect_heartbeat(target, workload.pods, node, before, observation, began)
    _expect_recovery(target, workload, node, observation, began)
    return observation


def reload_systemd(
    workload: WorkloadPods, node: NodePromise, privileged: PodNamespace
) -> Observation:
    """Let systemd read its units again: it writes all control groups' device rules once more."""
    observation = Observation()
    run_script(privileged, node, RELOAD_SYSTEMD, observation, "systemd")
    observation.looked_at(workload)
    return observation


def run_script(
    privileged: PodNamespace, node: NodePromise, script: str, observation: Observation, what: str
) -> None:
    breaker = privileged.run(node.name, ["/bin/sh", "-c", script])
    if breaker.code == CANNOT:
        not_applicable(breaker.log.strip())
    observation.times.append(breaker.log.strip())
    # A runtime that restarts may lose the code of the pod that restarted it, not its words.
    back = breaker.code == 0 or breaker.log.rstrip().endswith(DONE)
    observation.words.append(f"{what} back" if back else f"{what} not back: {breaker}")


def _expect_recovery(
    target: ClusterUnderTest,
    workload: WorkloadPods,
    node: NodePromise,
    observation: Observation,
    began: float,
) -> None:
    """Look at the pods, then wait for a device of each kind and for the plan."""
    observation.looked_at(workload)
    expect_service(workload, observation, began)
    expect_plan(target, workload.pods, node, observation, began)


def _expect_new_agent(
    target: ClusterUnderTest,
    workload: WorkloadPods,
    node: NodePromise,
    old: Mapping[str, Any],
    observation: Observation,
    began: float,
    patience: float,
) -> None:
    """Wait until another agent than the old one is ready."""

    def replaced() -> bool:
        new = target.agent(node.name)
        return new is not None and new["metadata"]["uid"] != old["uid"] and is_ready(new)

    back = workload.pods.until(replaced, patience)
    observation.waited("a new agent was ready", began)
    observation.words.append("agent back" if back else "agent not back")
