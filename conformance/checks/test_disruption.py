"""Disruption: what is restarted, changed or broken leaves running pods alone and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.check import BY_MPS, EVERY, PARTITIONED, check
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.namespaces import PodNamespaces
from conformance.cluster.pods import PodNamespace
from conformance.disruption.gpu_error import break_gpu
from conformance.disruption.observation import Observation
from conformance.disruption.profile_change import (
    change_profile,
    expected_of_change,
    hold_through_change,
    kind_to_hold,
)
from conformance.disruption.restarts import (
    reload_systemd,
    restart_agent,
    restart_all,
    restart_kubelet,
)
from conformance.evidence import Evidence
from conformance.load.workload_pods import WorkloadPods, kinds_to_hold, workload_pods
from conformance.observe.claims import require_unclaimed
from conformance.observe.holders import require_free, require_idle_node
from conformance.promise import NodePromise
from conformance.skips import not_applicable

pytestmark = pytest.mark.disruptive


@pytest.fixture
def workload(
    target: ClusterUnderTest, pods: PodNamespace, node: NodePromise
) -> Iterator[WorkloadPods]:
    """Give pods that hold one device of each kind on the node."""
    promises = kinds_to_hold(target.devices_of(node))
    for promise in promises:
        require_free(target, promise)
    with workload_pods(pods, promises) as running:
        yield running


@pytest.fixture
def _no_mps(target: ClusterUnderTest, node: NodePromise) -> None:
    if any(promise.mode in BY_MPS for promise in target.devices_of(node)):
        not_applicable("MPS daemons end with the agent's pod, and their clients with them")


@pytest.mark.usefixtures("_no_mps")
@check(
    "DISR-01",
    "a restart of the agent changes nothing for running pods",
    "MUST",
    EVERY,
    "see the agent's log from before and after",
)
def test_a_restart_of_the_agent_leaves_pods_alone(
    target: ClusterUnderTest, workload: WorkloadPods, node: NodePromise, evidence: Evidence
) -> None:
    observation = restart_agent(target, workload, node)
    _conclude(evidence, f"agent back, {workload.expected}, allocatable as planned", observation)


@check(
    "DISR-02",
    "a restart of the kubelet changes nothing for running pods",
    "MUST",
    EVERY,
    "see the kubelet's log; its service must leave control groups of pods alone",
)
def test_a_restart_of_the_kubelet_leaves_pods_alone(
    target: ClusterUnderTest,
    namespaces: PodNamespaces,
    workload: WorkloadPods,
    node: NodePromise,
    evidence: Evidence,
) -> None:
    observation = restart_kubelet(target, workload, node, namespaces.at("privileged"))
    _conclude(evidence, f"kubelet back, {workload.expected}, allocatable as planned", observation)


@check(
    "DISR-03",
    "a change of profile and back leaves running pods alone",
    "MUST",
    EVERY,
    "the status annotation says what the agent waits for; see `change` in the stack file",
)
def test_a_change_of_profile_leaves_pods_alone(
    target: ClusterUnderTest, pods: PodNamespace, node: NodePromise, evidence: Evidence
) -> None:
    own = kinds_to_hold(target.devices_of(node))
    _require_idle(target, node)
    with workload_pods(pods, [kind_to_hold(target, node, own)]) as workload:
        observation = change_profile(target, workload, node)
    _conclude(evidence, expected_of_change(target, node, workload.expected), observation)


@check(
    "DISR-04",
    "a broken GPU is withdrawn, the others serve, and it is advertised again",
    "MUST",
    EVERY,
    "see `health` in the stack file, and the reason in the status annotation",
)
@pytest.mark.enters
def test_a_broken_gpu_is_withdrawn_and_comes_back(
    target: ClusterUnderTest, workload: WorkloadPods, node: NodePromise, evidence: Evidence
) -> None:
    expected, observation = break_gpu(target, workload, node)
    _conclude(evidence, expected, observation)


@check(
    "DISR-05",
    "a holder of an idle MIG device keeps it through a restart of the kubelet",
    "MUST",
    PARTITIONED,
    "another tool may partition the GPUs; Divvy waits for every holder of a device",
)
def test_an_idle_holder_keeps_its_mig_device_through_a_restart_of_the_kubelet(
    target: ClusterUnderTest,
    namespaces: PodNamespaces,
    pods: PodNamespace,
    node: NodePromise,
    evidence: Evidence,
) -> None:
    _require_idle(target, node)
    privileged = namespaces.at("privileged")
    _conclude(evidence, *hold_through_change(target, pods, node, privileged=privileged))


@check(
    "DISR-06",
    "an init container keeps its MIG device while a change of profile waits",
    "MUST",
    PARTITIONED,
    "another tool may partition the GPUs; Divvy waits for init containers too",
)
def test_an_init_container_keeps_its_mig_device(
    target: ClusterUnderTest, pods: PodNamespace, node: NodePromise, evidence: Evidence
) -> None:
    _require_idle(target, node)
    _conclude(evidence, *hold_through_change(target, pods, node, init=True))


@check(
    "DISR-07",
    "a reload of systemd leaves running pods their devices",
    "MUST",
    EVERY,
    "the runtime must be given device nodes by CDI, not by a hook: see `runtime.configure`",
)
def test_a_reload_of_systemd_leaves_pods_alone(
    namespaces: PodNamespaces, workload: WorkloadPods, node: NodePromise, evidence: Evidence
) -> None:
    observation = reload_systemd(workload, node, namespaces.at("privileged"))
    _conclude(evidence, f"systemd back, {workload.expected}", observation)


@pytest.mark.usefixtures("_no_mps")
@check(
    "DISR-08",
    "agent, kubelet and runtime restart at once, as in a reboot",
    "MUST",
    EVERY,
    "see the logs of the kubelet and of the agent from before and after",
)
def test_agent_kubelet_and_runtime_restart_at_once(
    target: ClusterUnderTest,
    namespaces: PodNamespaces,
    workload: WorkloadPods,
    node: NodePromise,
    evidence: Evidence,
) -> None:
    observation = restart_all(target, workload, node, namespaces.at("privileged"))
    expected = f"kubelet and runtime back, agent back, {workload.expected}, allocatable as planned"
    _conclude(evidence, expected, observation)


def _require_idle(target: ClusterUnderTest, node: NodePromise) -> None:
    """Skip by name where somebody holds a device, or a claim of a GPU, of a node."""
    require_idle_node(target, node)
    if target.claims_of(node):
        require_unclaimed(target, node)


def _conclude(evidence: Evidence, expected: str, observation: Observation) -> None:
    evidence.add("\n".join(observation.times))
    evidence.require(expected, ", ".join(observation.words))
