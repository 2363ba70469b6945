"""Observes a disturbed node: waits for an event, measures how long it took, keeps what it saw."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.last_look import last_look
from conformance.cluster.pods import PodNamespace, is_turned_away
from conformance.load.workload_pods import WorkloadPods
from conformance.promise import DevicePromise, NodePromise

# The kubelet tells a changed list within its status period.
STATUS_PERIOD = 10.0
REPORTED = 2.5 * STATUS_PERIOD
BACK = 45.0
RECONFIGURE = 90.0
_RECONFIGURE_GPU = 25.0
PROBE_PERIOD = 10.0


@dataclass
class Observation:
    """What became of a disturbance: whether it holds, in words, and the times it took."""

    words: list[str] = field(default_factory=list)
    times: list[str] = field(default_factory=list)

    def waited(self, what: str, began: float) -> None:
        """Keep how long something took."""
        self.times.append(f"{what} after {time.monotonic() - began:.1f} s")

    def looked_at(self, workload: WorkloadPods) -> None:
        """Report whether the pods still compute, and keep the last output of those that do not."""
        self.words.append(workload.undisturbed())
        self.times += workload.disturbed


def reconfigured_within(node: NodePromise) -> float:
    """Return the seconds that a node has for another profile: one with many GPUs has more."""
    return max(RECONFIGURE, _RECONFIGURE_GPU * len(node.plan.gpus))


def expect_heartbeat(
    target: ClusterUnderTest,
    pods: PodNamespace,
    node: NodePromise,
    before: str,
    observation: Observation,
    began: float,
) -> None:
    """Wait for a status that the kubelet told after its restart: the one before proves nothing."""
    renewed = pods.until(lambda: target.heartbeat(node.name) != before, BACK)
    observation.waited("the kubelet reported its status", began)
    observation.words += [] if renewed else ["no status from the kubelet since"]


def expect_service(workload: WorkloadPods, observation: Observation, began: float) -> None:
    """Let a new pod get a device of each kind: the last one of a kind is given up for it.

    Allocatable may still be the one from before, and says nothing of what is served.
    """
    last = [promise.resource for promise in workload.promises if promise.count == 1]
    workload.end(*last)
    expect_new_pods(workload.pods, workload.promises, observation, began)


def expect_new_pods(
    pods: PodNamespace, promises: Sequence[DevicePromise], observation: Observation, began: float
) -> None:
    for promise in promises:
        served = _serves(pods, promise.node.name, promise.resource)
        observation.waited(f"a new pod with {promise.resource}", began)
        observation.words += [] if served else [f"no new pod gets {promise.resource}"]


def expect_plan(
    target: ClusterUnderTest,
    pods: PodNamespace,
    node: NodePromise,
    observation: Observation,
    began: float,
    patience: float = BACK,
) -> None:
    wanted = dict(node.plan.per_node)
    if pods.until(lambda: target.advertised(node.name) == wanted, patience):
        observation.words.append("allocatable as planned")
    else:
        observation.words.append(f"allocatable {counts(target.advertised(node.name))}")
    observation.waited("allocatable as planned", began)


def counts(counts: Mapping[str, int]) -> str:
    named = (f"{count} {name.removeprefix('nvidia.com/')}" for name, count in counts.items())
    return ", ".join(sorted(named)) or "nothing"


def _serves(pods: PodNamespace, node: str, resource: str) -> bool:
    """Try until a pod gets a device: the kubelet refuses it until the agent is back with it."""
    last = last_look(
        lambda: pods.run(node, ["cuda-vector-add"], resource, REPORTED),
        lambda outcome: not is_turned_away(outcome),
        BACK,
    )
    return last.code == 0
