"""An error of the GPU under a pod: it takes its own devices away, and no other's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.disruption.observation import (
    PROBE_PERIOD,
    REPORTED,
    STATUS_PERIOD,
    Observation,
    counts,
    expect_new_pods,
    expect_plan,
)
from conformance.load.workload_pods import WorkloadPods
from conformance.promise import NodePromise
from conformance.skips import not_applicable, not_made

_XIDS = (48, 63, 64, 74, 79, 94, 95)


def break_gpu(
    target: ClusterUnderTest, workload: WorkloadPods, node: NodePromise
) -> tuple[str, Observation]:
    """Make the simulated driver report an error of the GPU under a pod; return what must be seen.

    The first is what is expected, the second what was seen.
    """
    status = target.status(node.name)
    if not status.get("simulated"):
        not_applicable("an error of a GPU can only be brought about on the simulated driver")
    number = next((xid for xid in _XIDS if xid not in target.cluster.health.ignore_xids), None)
    if number is None:
        not_applicable(f"the stack file ignores all of XID {', '.join(map(str, _XIDS))}")
    if target.cluster.health.recover_after < STATUS_PERIOD:
        not_applicable(
            f"with a health.recoverAfter below {STATUS_PERIOD:g} s it could not be observed"
        )
    agent = target.agent(node.name)
    uuid = workload.gpu()
    index = next((gpu["index"] for gpu in status["gpus"] if gpu["uuid"] == uuid), None)
    if index is None:
        not_made(f"the status annotation does not name the pod's GPU {uuid}")
    fewer = _without(node, index)
    began = time.monotonic()
    target.enter(node.name, f"/driver-root/usr/bin/divvy-sim fault xid {uuid} {number}")
    observation = Observation()
    workload.pods.until(lambda: target.advertised(node.name) == fewer, REPORTED)
    observation.waited(f"allocatable without GPU {index} ({uuid}, XID {number})", began)
    observation.words.append(f"advertised {counts(target.advertised(node.name))}")
    observation.looked_at(workload)
    # The other GPUs serve on. The scheduler counts the pod on the broken one as well: where one
    # device is left, the pod of ours is given up for the new one.
    left = [promise for promise in workload.promises if fewer.get(promise.resource, 0)]
    workload.end(*(promise.resource for promise in left if fewer[promise.resource] == 1))
    expect_new_pods(workload.pods, left, observation, began)
    patience = target.cluster.health.recover_after + PROBE_PERIOD + REPORTED
    expect_plan(target, workload.pods, node, observation, began, patience)
    back = target.agent(node.name)
    if _started(agent) != _started(back):
        observation.words.append("the agent restarted")
    expected = f"advertised {counts(fewer)}, {workload.expected}, allocatable as planned"
    return expected, observation


def _started(agent: Mapping[str, Any] | None) -> tuple[str, int] | None:
    """Return what tells an agent from one that was started again."""
    if agent is None:
        return None
    containers = (agent.get("status") or {}).get("containerStatuses") or []
    restarts = sum(int(container.get("restartCount") or 0) for container in containers)
    return str(agent["metadata"]["uid"]), restarts


def _without(node: NodePromise, index: int) -> dict[str, int]:
    left = dict(node.plan.per_node)
    for device in node.plan.gpus[index].devices:
        left[device.resource] -= 1
    return {name: count for name, count in left.items() if count}
