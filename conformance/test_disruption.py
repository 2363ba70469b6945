"""Disruption: what is restarted, changed or broken leaves running pods alone and comes back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance import disruption
from conformance.catalogue import check
from conformance.disruption import Seen
from conformance.evidence import Evidence
from conformance.pods import Workplace
from conformance.promise import NodePromise
from conformance.site import Site
from conformance.tenancy import Tenancy, tenancy
from conformance.tenants import require_free, require_idle_node
from conformance.workplaces import Workplaces

pytestmark = pytest.mark.disruptive


@pytest.fixture
def tenants(site: Site, pods: Workplace, node: NodePromise) -> Iterator[Tenancy]:
    """Give pods that hold one device of each kind on the node."""
    promises = [one for one in site.devices if one.node.name == node.name]
    for promise in promises:
        require_free(site, promise)
    with tenancy(pods, promises) as found:
        yield found


@check("DISR-01")
def test_a_restart_of_the_agent_leaves_pods_alone(
    site: Site, tenants: Tenancy, node: NodePromise, evidence: Evidence
) -> None:
    seen = disruption.restart_agent(site, tenants, node)
    _conclude(evidence, f"agent back, allocatable as planned, {tenants.expected}", seen)


@check("DISR-02")
def test_a_restart_of_the_kubelet_leaves_pods_alone(
    site: Site, places: Workplaces, tenants: Tenancy, node: NodePromise, evidence: Evidence
) -> None:
    seen = disruption.restart_kubelet(site, tenants, node, places.at("privileged"))
    _conclude(evidence, f"kubelet back, allocatable as planned, {tenants.expected}", seen)


@check("DISR-03")
def test_a_change_of_profile_leaves_pods_alone(
    site: Site, pods: Workplace, node: NodePromise, evidence: Evidence
) -> None:
    require_idle_node(site, node)
    own = [one for one in site.devices if one.node.name == node.name]
    with tenancy(pods, [disruption.most_changed(site, node, own)]) as tenant:
        seen = disruption.change_profile(site, tenant, node)
    _conclude(evidence, disruption.expected_of_change(site, node, tenant.expected), seen)


@check("DISR-04")
@pytest.mark.enters
def test_a_broken_gpu_is_withdrawn_and_comes_back(
    site: Site, tenants: Tenancy, node: NodePromise, evidence: Evidence
) -> None:
    expected, seen = disruption.break_gpu(site, tenants, node)
    _conclude(evidence, expected, seen)


def _conclude(evidence: Evidence, expected: str, seen: Seen) -> None:
    evidence.add("\n".join(seen.times))
    evidence.require(expected, ", ".join(seen.words))
