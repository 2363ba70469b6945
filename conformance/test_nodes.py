"""Nodes: the agent, the driver, the labels, what is offered."""

from __future__ import annotations

import time

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.promise import NodePromise
from conformance.site import Site

# A kubelet tells a changed list within its status period, 10 s by default.
_STATUS_PERIOD = 25.0


@check("NODE-01")
def test_the_agent_follows_the_stack_file(
    site: Site, node: NodePromise, evidence: Evidence
) -> None:
    status = site.status(node.name)
    evidence.add(status)
    evidence.require(
        f"profile {node.profile}, state Ready",
        f"profile {status.get('profile')}, state {status.get('state', 'none: no agent')}",
    )


@check("NODE-02")
def test_labels_describe_the_gpus(site: Site, node: NodePromise, evidence: Evidence) -> None:
    labels = site.live(node.name)["metadata"]["labels"]
    model = node.plan.gpus[0].model
    wanted = {
        "nvidia.com/gpu.count": str(len(node.plan.gpus)),
        "nvidia.com/gpu.product": model.product.replace(" ", "-"),
        "nvidia.com/gpu.compute.major": str(model.compute_capability[0]),
    }
    found = {name: labels.get(name) for name in wanted}
    product = found["nvidia.com/gpu.product"] or ""
    found["nvidia.com/gpu.product"] = product.removesuffix("-SHARED")
    evidence.require(wanted, found)


@check("NODE-03")
def test_the_driver_is_the_named_one(site: Site, node: NodePromise, evidence: Evidence) -> None:
    version = site.cluster.driver.version
    evidence.require(version or "any", site.status(node.name).get("driver") if version else "any")


@check("PLUG-01")
def test_nothing_unpromised_is_offered(site: Site, node: NodePromise, evidence: Evidence) -> None:
    unpromised = {
        name: count
        for name, count in _offered(site, node).items()
        if name not in node.plan.per_node and count
    }
    evidence.require({}, unpromised)


@check("PLUG-02")
def test_allocatable_is_the_plan(site: Site, node: NodePromise, evidence: Evidence) -> None:
    wanted = dict(node.plan.per_node)
    deadline = time.monotonic() + _STATUS_PERIOD
    found: dict[str, int] = {}
    while time.monotonic() < deadline:
        found = {name: _offered(site, node).get(name, 0) for name in wanted}
        if found == wanted:
            break
        time.sleep(0.5)
    evidence.require(wanted, found)


def _offered(site: Site, node: NodePromise) -> dict[str, int]:
    allocatable = site.live(node.name)["status"]["allocatable"]
    return {
        name: int(count) for name, count in allocatable.items() if name.startswith("nvidia.com/")
    }
