"""The agents: their metrics."""

from __future__ import annotations

import pytest

from conformance.catalogue import check
from conformance.evidence import Evidence
from conformance.fixtures import Tellings
from conformance.promise import DevicePromise, NodePromise
from conformance.scrape import HELD_MIB, MOST_MIB, Told, scrape
from conformance.site import Site
from conformance.tenants import require_free

_NO_AGENT = "no agent on the node"


@check("OBS-01")
@pytest.mark.enters
def test_metrics_name_every_gpu(site: Site, node: NodePromise, evidence: Evidence) -> None:
    found = scrape(site, node.name)
    if found is None:
        evidence.require("an agent", _NO_AGENT)
        return
    evidence.add(found.lines("DCGM_FI_DEV_FB_USED{"))
    shown = len(found.values("DCGM_FI_DEV_FB_USED"))
    evidence.require(f"{len(node.plan.gpus)} GPUs", f"{shown} GPUs")


@check("OBS-02")
@pytest.mark.enters
def test_metrics_name_the_pod_that_holds_a_device(
    site: Site, tellings: Tellings, promise: DevicePromise, evidence: Evidence
) -> None:
    require_free(site, promise)
    told, pod = _told(tellings, promise, evidence)
    held = told.metrics.values("divvy_device_held", pod=pod, resource=promise.resource)
    evidence.require("devices held by the pod: 1", f"devices held by the pod: {len(held)}")


@check("OBS-03")
@pytest.mark.enters
def test_metrics_tell_the_memory_of_a_pod_that_is_alone(
    site: Site, tellings: Tellings, promise: DevicePromise, evidence: Evidence
) -> None:
    require_free(site, promise)
    told, pod = _told(tellings, promise, evidence)
    used = told.metrics.values("divvy_pod_memory_used_mib", pod=pod)
    evidence.require_that(
        len(used) == 1 and HELD_MIB <= used[0] <= MOST_MIB,
        f"{HELD_MIB} to {MOST_MIB} MiB for a pod that has allocated {HELD_MIB}",
        f"{used[0]:g} MiB" if used else "nothing about the pod's memory",
    )


def _told(tellings: Tellings, promise: DevicePromise, evidence: Evidence) -> tuple[Told, str]:
    told = tellings[promise.node]
    assert told is not None, _NO_AGENT
    pod = told.pods.get(promise.resource)
    if pod is None:
        pytest.skip("every device was held when the metrics were read")
    evidence.add(told.metrics.lines(f'pod="{pod}"'))
    return told, pod
