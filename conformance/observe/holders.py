"""Pods of others that hold devices: what they hold is neither used nor asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from conformance.check import SHARED
from conformance.cluster.cluster_under_test import ClusterUnderTest
from conformance.cluster.last_look import last_look
from conformance.cluster.namespaces import OWN_NAMESPACE
from conformance.promise import DevicePromise, NodePromise
from conformance.skips import CheckSkipped, not_made
from divvy.kube.kind import POD, RESOURCE_CLAIM
from divvy.model import parse_count
from divvy.model.claim_status import allocation_results, consumer_pods
from divvy.model.phrases import some
from divvy.model.pod_phase import is_finished
from divvy.model.resource_names import VENDOR

_DRA_DRIVER = f"gpu.{VENDOR}"
# On claims that the scheduler makes of a pod's limits, for a class with extendedResourceName.
_BY_LIMITS = "resource.kubernetes.io/extended-resource-claim"
# Pods of a check before, or of a run that was just stopped, are on their way out.
_LEAVING = 30.0


def holders(pods: Iterable[Any], node: str, resource: str) -> Mapping[str, int]:
    """Return namespace/name → devices of the pods that hold a resource.

    Pods of this and of other runs of the suite count as all others: whatever is left of them
    holds its device.
    """
    counts = {}
    for pod in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        if is_finished(pod) or spec.get("nodeName") != node:
            continue
        containers = [*spec["containers"], *(spec.get("initContainers") or ())]
        limits = [
            (container.get("resources") or {}).get("limits") or {} for container in containers
        ]
        held = sum(parse_count(limit.get(resource, 0)) or 0 for limit in limits)
        if held:
            counts[f"{metadata['namespace']}/{metadata['name']}"] = held
    return counts


def claimants(
    pods: Iterable[Any], claims: Iterable[Mapping[str, Any]], node: str
) -> Mapping[str, int]:
    """Return namespace/name → GPUs or parts of one that DRA claims give the pods of a node.

    Which resource of a device plugin they are lost to cannot be told: they count for each.
    """
    here = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        for pod in pods
        if pod["spec"].get("nodeName") == node and not is_finished(pod)
    }
    counts: dict[str, int] = {}
    for claim in claims:
        if (claim["metadata"].get("annotations") or {}).get(_BY_LIMITS) == "true":
            continue  # the limits of its pod say what it holds
        # Administrative access leaves the device to others.
        count = sum(
            result.get("driver") == _DRA_DRIVER and not result.get("adminAccess")
            for result in allocation_results(claim)
        )
        for pod_name, _ in consumer_pods(claim):
            name = f"{claim['metadata']['namespace']}/{pod_name}"
            if count and name in here:
                counts[name] = counts.get(name, 0) + count
    return counts


def require_free(target: ClusterUnderTest, promise: DevicePromise) -> None:
    """Skip by name where using a device would disturb somebody, or none is left."""
    held = _held(target, promise)
    if held and promise.mode in SHARED:
        not_made(f"replicas are held by {some(sorted(held))}")
    if sum(held.values()) >= promise.count:
        not_made(f"every device is held by {some(sorted(held))}")


def is_free(target: ClusterUnderTest, promise: DevicePromise) -> bool:
    """Return whether a device can be used without disturbing a pod."""
    try:
        require_free(target, promise)
    except CheckSkipped:
        return False
    return True


def require_idle(target: ClusterUnderTest, promise: DevicePromise) -> None:
    """Skip by name where filling or burning would disturb somebody."""
    held = _held(target, promise)
    if held:
        not_made(f"needs idle GPUs: devices are held by {some(sorted(held))}")


def require_idle_node(target: ClusterUnderTest, node: NodePromise) -> None:
    """Skip by name where anybody else holds any device of a node."""
    for promise in target.devices_of(node):
        require_idle(target, promise)


def _held(target: ClusterUnderTest, promise: DevicePromise) -> Mapping[str, int]:
    """Return who holds a kind of device once the run's own pods have left it."""

    def look() -> tuple[Mapping[str, int], Mapping[str, int]]:
        on_node = {"spec.nodeName": promise.node.name}
        pods, unread_pods = target.api.find_whole(POD, fields=on_node)
        claims, unread_claims = target.api.find_whole(RESOURCE_CLAIM)
        held = Counter(holders(pods, promise.node.name, promise.resource))
        held.update(claimants(pods, claims, promise.node.name))
        # What cannot be read may hold every device.
        for unread in (*unread_pods, *unread_claims):
            held[f"{unread} (which cannot be read)"] = promise.count
        return held, holders(filter(_is_own, pods), promise.node.name, promise.resource)

    held, _ = last_look(look, lambda seen: not seen[1], _LEAVING)
    return held


def _is_own(pod: Any) -> bool:
    """Return whether a pod is of a run: anybody may set its label, and would be waited for."""
    return OWN_NAMESPACE.fullmatch(pod["metadata"]["namespace"]) is not None
