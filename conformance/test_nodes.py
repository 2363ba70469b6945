"""Nodes: the agent, the driver, the labels, what is offered."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping

import pytest

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.promise import NodePromise
from conformance.runtime import Specification, runtime_lacks, specification
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
    wanted = _labels(node)
    found = {name: labels.get(name) for name in wanted}
    product = found["nvidia.com/gpu.product"] or ""
    found["nvidia.com/gpu.product"] = product.removesuffix("-SHARED")
    evidence.require(_listed(wanted), _listed(found))


def _labels(node: NodePromise) -> dict[str, str]:
    """Return the feature labels that follow from the plan of a node."""
    model = node.plan.gpus[0].model
    whole = [one for one in node.plan.devices if one.kind.startswith("gpu")]
    shares = max((one.shares for one in whole), default=1)
    wanted: dict[str, str | int] = {
        "gpu.count": len(node.plan.gpus),
        "gpu.product": model.product.replace(" ", "-"),
        "gpu.memory": model.memory_mib,
        "gpu.compute.major": model.compute_capability[0],
        "gpu.compute.minor": model.compute_capability[1],
        "gpu.replicas": shares,
        "gpu.sharing-strategy": "time-slicing" if shares > 1 else "none",
        "mig.capable": str(model.mig is not None).lower(),
    }
    for one in node.plan.devices:
        # Where MIG devices go by another name (`single`), the labels do too.
        name = one.resource.removeprefix("nvidia.com/").removesuffix(".shared")
        if one.placement is not None and name.startswith("mig-") and one.share == 0:
            wanted[f"{name}.count"] = int(wanted.get(f"{name}.count", 0)) + 1
            wanted[f"{name}.memory"] = one.memory_mib or 0
    return {f"nvidia.com/{name}": str(value) for name, value in wanted.items()}


@check("NODE-04")
@pytest.mark.enters
def test_the_cdi_specification_names_every_device(
    site: Site, node: NodePromise, evidence: Evidence
) -> None:
    found = specification(site, node.name)
    lacks = runtime_lacks(site, node.name)
    if lacks is None:
        evidence.add("Divvy does not prepare this node's runtime; WORK-01 shows that it takes CDI")
    cut = sum(len(gpu.placements or ()) for gpu in node.plan.gpus)
    wanted = Specification(len(node.plan.gpus), cut, (), 0)
    evidence.add("no agent on the node" if found is None else f"{found.files} files are named")
    evidence.require(
        f"{wanted}; the runtime lacks: nothing",
        f"{found or 'no agent on the node'}; the runtime lacks: {lacks or 'nothing'}",
    )


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
