"""The agents: their metrics, and what a restart does."""

from __future__ import annotations

import time
from typing import Any

import pytest
import testinfra

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.pods import Pod, Workplace
from conformance.promise import DevicePromise, NodePromise
from conformance.site import Site


def agent_of(site: Site, node: str) -> Any:
    """Return the agent's pod on a node."""
    labels = {"app.kubernetes.io/component": "agent", "app.kubernetes.io/name": "divvy"}
    for pod in site.client.list(Pod, namespace=site.cluster.namespace, labels=labels):
        if pod["spec"].get("nodeName") == node and not pod["metadata"].get("deletionTimestamp"):
            return pod
    raise AssertionError(f"no agent runs on {node}")


@check("OBS-01")
@pytest.mark.enters
def test_metrics_name_every_gpu(site: Site, node: NodePromise, evidence: Evidence) -> None:
    pod = agent_of(site, node.name)["metadata"]["name"]
    options = f"namespace={site.cluster.namespace}"
    if site.kubeconfig:
        options += f"&kubeconfig={site.kubeconfig}"
    host = testinfra.get_host(f"kubectl://{pod}?{options}")
    read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9410/metrics').read().decode())"
    text = host.check_output("python3 -c %s", read)
    shown = [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_FB_USED{")]
    evidence.add("\n".join(shown))
    evidence.require(len(node.plan.gpus), len(shown))


@check("DISR-01")
@pytest.mark.disruptive
def test_a_restart_of_the_agent_leaves_pods_alone(
    site: Site, pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    tenant = pods.start(promise.node.name, ["sleep", "300"], promise.resource)
    try:
        assert pods.until(lambda: pods.phase(tenant) == "Running", 60)
        old = agent_of(site, promise.node.name)["metadata"]
        site.client.delete(Pod, old["name"], namespace=old["namespace"], grace_period=1)
        began = time.monotonic()

        def restored() -> bool:
            count = site.live(promise.node.name)["status"]["allocatable"].get(promise.resource)
            try:
                new = agent_of(site, promise.node.name)["metadata"]["uid"]
            except AssertionError:
                return False
            return new != old["uid"] and int(count or 0) == promise.count

        back = pods.until(restored, 60)
        evidence.add(f"allocatable again after {time.monotonic() - began:.1f} s")
        evidence.require(
            "allocatable restored, pod Running",
            f"allocatable {'restored' if back else 'not restored'}, pod {pods.phase(tenant)}",
        )
    finally:
        pods.remove(tenant)
