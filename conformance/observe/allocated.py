"""The devices that a pod was allocated, by the kubelet's list or its claim, and those it sees."""

from __future__ import annotations

from collections.abc import Sequence

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.pods import PodNamespace
from conformance.cluster.slices import claimed_uuids
from conformance.observe.identities import physical, visible_devices
from conformance.observe.runtime import held_devices
from conformance.promise import DevicePromise
from conformance.skips import not_applicable
from divvy.kube.kind import POD, RESOURCE_CLAIM, RESOURCE_SLICE

_MARK = "@@ listed"
_COMMAND = ("/bin/sh", "-c", f"nvidia-smi -L; echo '{_MARK}'; sleep 120")
_PATIENCE, _REPORTING = 60, 20


def allocation(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise
) -> tuple[str, str]:
    """Return what a pod with one device has to see, by the kubelet's list, and what it saw.

    Of a DRA driver: by the claim that the scheduler has made of the pod's limits.
    """
    driver = target.implementation.dra_driver
    name = pods.start(promise.node.name, _COMMAND, promise.resource)
    try:
        pods.until(lambda: _MARK in pods.log(name) or pods.phase(name) == "Failed", _PATIENCE)
        key = f"{pods.name}/{name}"
        seen: list[str] = []

        def is_reported() -> bool:
            if driver is not None:
                seen[:] = _by_claim(target, pods.name, name, driver)
            else:
                held = held_devices(target, promise.node.name) or {}
                seen[:] = held.get(key, ())
            return bool(seen)

        pods.until(is_reported, _REPORTING)
        listed = visible_devices(pods.log(name))
    finally:
        pods.remove(name)
    given = sorted(physical(device_id) for device_id in seen)
    source = "the kubelet lists" if driver is None else "the claim has"
    expected = ", ".join(given) if len(given) == 1 else f"one device, {source} {given}"
    return expected, ", ".join(sorted(listed)) or "no device"


def _by_claim(target: ClusterUnderTest, namespace: str, name: str, driver: str) -> Sequence[str]:
    pod = target.api.get(POD, name, namespace)
    claim = (pod.get("status") or {}).get("extendedResourceClaimStatus") or {}
    if not claim:
        return ()
    live = target.api.get(RESOURCE_CLAIM, claim["resourceClaimName"], namespace)
    uuids = claimed_uuids(live, target.api.find_known(RESOURCE_SLICE), driver)
    if uuids and not all(uuids):
        not_applicable("the slices name no UUID of a device that is made for its claim")
    return uuids
