"""Nodes: the agent, the driver, the labels, what is offered."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

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
    evidence.add(json.dumps(status, indent=1))
    pod = site.agent(node.name)
    conditions = [] if pod is None else pod["status"].get("conditions") or []
    ready = any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
    agent = "ready" if ready else "none" if pod is None else "not ready"
    evidence.require(
        f"agent ready, profile {node.profile}, state Ready",
        f"agent {agent}, profile {status.get('profile')}, state {status.get('state', 'unknown')}",
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
    evidence.require(_listed(wanted), _listed(found))


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
    evidence.require("nothing else", _words(unpromised) or "nothing else")


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
    evidence.require(_words(wanted), _words(found))


def _listed(labels: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name.removeprefix('nvidia.com/')}={value}" for name, value in labels.items()
    )


def _words(counts: Mapping[str, object]) -> str:
    return ", ".join(
        f"{count} {name.removeprefix('nvidia.com/')}" for name, count in counts.items()
    )


def _offered(site: Site, node: NodePromise) -> dict[str, int]:
    allocatable = site.live(node.name)["status"]["allocatable"]
    return {
        name: int(count) for name, count in allocatable.items() if name.startswith("nvidia.com/")
    }
