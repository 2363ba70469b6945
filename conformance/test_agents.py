"""The agents: their metrics, and what a restart does."""

from __future__ import annotations

import time

import pytest
import testinfra

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.pods import Pod, Workplace
from conformance.promise import DevicePromise, NodePromise
from conformance.site import Site


@check("OBS-01")
@pytest.mark.enters
def test_metrics_name_every_gpu(site: Site, node: NodePromise, evidence: Evidence) -> None:
    found = site.agent(node.name)
    if found is None:
        evidence.require("an agent", "no agent on the node")
        return
    pod = found["metadata"]["name"]
    options = f"namespace={site.cluster.namespace}"
    if site.kubeconfig:
        options += f"&kubeconfig={site.kubeconfig}"
    host = testinfra.get_host(f"kubectl://{pod}?{options}")
    read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9410/metrics').read().decode())"
    text = host.check_output("python3 -c %s", read)
    shown = [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_FB_USED{")]
    evidence.add("\n".join(shown))
    evidence.require(f"{len(node.plan.gpus)} GPUs", f"{len(shown)} GPUs")


@check("DISR-01")
@pytest.mark.disruptive
def test_a_restart_of_the_agent_leaves_pods_alone(
    site: Site, pods: Workplace, promise: DevicePromise, evidence: Evidence
) -> None:
    tenant = pods.start(promise.node.name, ["sleep", "300"], promise.resource)
    try:
        assert pods.until(lambda: pods.phase(tenant) == "Running", 60)
        agent = site.agent(promise.node.name)
        assert agent is not None, "no agent on the node"
        old = agent["metadata"]
        site.client.delete(Pod, old["name"], namespace=old["namespace"], grace_period=1)
        began = time.monotonic()

        def restored() -> bool:
            count = site.live(promise.node.name)["status"]["allocatable"].get(promise.resource)
            new = site.agent(promise.node.name)
            replaced = new is not None and new["metadata"]["uid"] != old["uid"]
            return replaced and int(count or 0) == promise.count

        back = pods.until(restored, 60)
        evidence.add(f"allocatable again after {time.monotonic() - began:.1f} s")
        evidence.require(
            "allocatable restored, pod Running",
            f"allocatable {'restored' if back else 'not restored'}, pod {pods.phase(tenant)}",
        )
    finally:
        pods.remove(tenant)
