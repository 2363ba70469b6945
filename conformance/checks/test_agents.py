"""The agents: their metrics."""

from __future__ import annotations

import pytest

from conformance.check import EVERY, MIG, SHARED, WHOLE, check
from conformance.checks.verdicts import one_series_per_pod
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.namespaces import PodNamespaces
from conformance.cluster.pods import PodNamespace
from conformance.evidence import Evidence
from conformance.fixtures import MetricsSamples
from conformance.observe.holders import require_free
from conformance.observe.runtime import driver_devices
from conformance.observe.scrape import (
    HELD_MIB,
    MAX_MIB,
    MetricsSample,
    sample_sharers,
    scrape,
    service_address,
)
from conformance.promise import DevicePromise, NodePromise
from divvy.model.api_names import AGENT, METRICS_PORT

_NO_AGENT = "no agent on the node"


@check(
    "OBS-01",
    "the agent's metrics name every GPU",
    "SHOULD",
    EVERY,
    "compare with `nvidia-smi -L` on the node, then see the agent's log",
    cncf=("accelerator_metrics",),
)
@pytest.mark.enters
def test_metrics_name_every_gpu(
    target: ClusterUnderTest, node: NodePromise, evidence: Evidence
) -> None:
    metrics = scrape(target, node.name)
    if metrics is None:
        evidence.require("an agent", _NO_AGENT)
        return
    evidence.add(metrics.lines("DCGM_FI_DEV_FB_USED{"))
    named = metrics.label_values("DCGM_FI_DEV_FB_USED", "UUID")
    devices = driver_devices(target, node.name) or frozenset()
    gpus = sorted(uuid for uuid in devices if uuid.startswith("GPU-"))
    evidence.require(
        f"{len(node.plan.gpus)} GPUs: {', '.join(gpus)}",
        f"{len(named)} GPUs: {', '.join(sorted(named))}",
    )


@check(
    "OBS-02",
    "the agent's metrics name the pod that holds a device",
    "SHOULD",
    EVERY,
    "the agent asks the kubelet: is /var/lib/kubelet/pod-resources in its pod?",
    cncf=("accelerator_metrics",),
)
@pytest.mark.enters
def test_metrics_name_the_pod_that_holds_a_device(
    target: ClusterUnderTest,
    metrics_samples: MetricsSamples,
    promise: DevicePromise,
    evidence: Evidence,
) -> None:
    require_free(target, promise)
    sample, pod = _sample(metrics_samples, promise, evidence)
    held = sample.metrics.values("divvy_device_held", pod=pod, resource=promise.resource)
    evidence.require("devices held by the pod: 1", f"devices held by the pod: {len(held)}")


@check(
    "OBS-03",
    "the agent's metrics report the memory of a pod that is alone on a device",
    "SHOULD",
    (WHOLE, MIG),
    "compare with nvidia-smi on the node, then with OBS-02",
    cncf=("accelerator_metrics",),
)
@pytest.mark.enters
def test_metrics_tell_the_memory_of_a_pod_that_is_alone(
    target: ClusterUnderTest,
    metrics_samples: MetricsSamples,
    promise: DevicePromise,
    evidence: Evidence,
) -> None:
    require_free(target, promise)
    sample, pod = _sample(metrics_samples, promise, evidence)
    used = sample.metrics.values("divvy_pod_memory_used_mib", pod=pod)
    evidence.require_that(
        len(used) == 1 and HELD_MIB <= used[0] <= MAX_MIB,
        f"{HELD_MIB} to {MAX_MIB} MiB for a pod that has allocated {HELD_MIB}",
        f"{used[0]:g} MiB" if used else "nothing about the pod's memory",
    )


def _sample(
    metrics_samples: MetricsSamples, promise: DevicePromise, evidence: Evidence
) -> tuple[MetricsSample, str]:
    sample = metrics_samples[promise.node]
    assert sample is not None, _NO_AGENT
    pod = sample.pods.get(promise.resource)
    if pod is None:
        pytest.skip("every device was held when the metrics were read")
    evidence.add(sample.metrics.lines(f'pod="{pod}"'))
    return sample, pod


@check(
    "OBS-05",
    "each pod of a shared device has a series of its own in the agent's metrics",
    "SHOULD",
    SHARED,
    "the agent asks the kubelet who holds a replica: see its log",
    cncf=("accelerator_metrics",),
)
@pytest.mark.enters
def test_every_pod_of_a_shared_device_has_a_series(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise, evidence: Evidence
) -> None:
    require_free(target, promise)
    sample = sample_sharers(target, pods, promise)
    assert sample is not None, _NO_AGENT
    names, series = sample
    evidence.add(
        "\n".join(f"{labels['pod']}: {labels['device']} on {labels['uuid']}" for labels in series)
    )
    evidence.require(*one_series_per_pod(names, series))


@check(
    "OBS-04",
    "metrics reach a scraper in another namespace, through the Service",
    "SHOULD",
    EVERY,
    f"does a NetworkPolicy keep readers from port {METRICS_PORT} of {AGENT}?",
    cncf=("accelerator_metrics",),
)
def test_metrics_reach_a_scraper_in_another_namespace(
    target: ClusterUnderTest, namespaces: PodNamespaces, node: NodePromise, evidence: Evidence
) -> None:
    # The readers that the stack file lets in are namespaces with these labels.
    pods = namespaces.at("restricted", target.cluster.observability.network_policy)
    address = service_address(target, node.name)
    if address is None:
        evidence.require(f"the Service {AGENT} leads to the node's agent", "it does not")
        return
    evidence.command = f"http-get {address} {METRICS_PORT} /metrics"
    outcome = pods.run(node.name, ["http-get", address, str(METRICS_PORT), "/metrics"])
    evidence.add(outcome.log[-2000:])
    # Whatever serves the GPUs, each agent says how its node is.
    has_metrics = "divvy_node_state{" in outcome.log and f'node="{node.name}"' in outcome.log
    evidence.require_that(
        outcome.code == 0 and has_metrics, "an answer with this node's metrics", outcome
    )
