"""What a pod was allocated, by the kubelet's own list, beside what it sees."""

from __future__ import annotations

from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.pods import PodNamespace
from conformance.observe.identities import physical, visible_devices
from conformance.observe.runtime import held_devices
from conformance.promise import DevicePromise

_MARK = "@@ listed"
_COMMAND = ("/bin/sh", "-c", f"nvidia-smi -L; echo '{_MARK}'; sleep 120")
_PATIENCE, _REPORTING = 60, 20


def allocation(
    target: ClusterUnderTest, pods: PodNamespace, promise: DevicePromise
) -> tuple[str, str]:
    """Return what a pod with one device has to see, by the kubelet's list, and what it saw."""
    name = pods.start(promise.node.name, _COMMAND, promise.resource)
    try:
        pods.until(lambda: _MARK in pods.log(name) or pods.phase(name) == "Failed", _PATIENCE)
        key = f"{pods.name}/{name}"
        seen: list[str] = []

        def is_reported() -> bool:
            held = held_devices(target, promise.node.name) or {}
            seen[:] = held.get(key, ())
            return bool(seen)

        pods.until(is_reported, _REPORTING)
        listed = visible_devices(pods.log(name))
    finally:
        pods.remove(name)
    given = sorted(physical(device_id) for device_id in seen)
    expected = ", ".join(given) if len(given) == 1 else f"one device, the kubelet lists {given}"
    return expected, ", ".join(sorted(listed)) or "no device"
