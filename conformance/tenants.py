"""Pods of others that hold devices: what they hold is neither used nor asked for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from conformance.catalogue import SHARED
from conformance.pod_spec import OWN
from conformance.pods import Pod
from conformance.promise import DevicePromise, NodePromise
from conformance.site import Site

_NAMED = 3


def holders(pods: Iterable[Any], node: str, resource: str) -> Mapping[str, int]:
    """Return namespace/name → devices of the pods, other than a run's, that hold a resource."""
    found = {}
    for pod in pods:
        metadata, spec = pod["metadata"], pod["spec"]
        ended = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        own = OWN.items() <= (metadata.get("labels") or {}).items()
        if ended or own or spec.get("nodeName") != node:
            continue
        containers = [*spec["containers"], *(spec.get("initContainers") or ())]
        limits = [(one.get("resources") or {}).get("limits") or {} for one in containers]
        held = sum(int(limit.get(resource, 0)) for limit in limits)
        if held:
            found[f"{metadata['namespace']}/{metadata['name']}"] = held
    return found


def require_free(site: Site, promise: DevicePromise) -> None:
    """Skip by name where using a device would disturb somebody, or none is left."""
    held = _held(site, promise)
    if held and promise.mode in SHARED:
        pytest.skip(f"shares are held by {_names(held)}")
    if sum(held.values()) >= promise.count:
        pytest.skip(f"every device is held by {_names(held)}")


def is_free(site: Site, promise: DevicePromise) -> bool:
    """Tell whether a device can be used and disturbs nobody."""
    try:
        require_free(site, promise)
    except pytest.skip.Exception:
        return False
    return True


def require_idle(site: Site, promise: DevicePromise) -> None:
    """Skip by name where filling or burning would disturb somebody."""
    held = _held(site, promise)
    if held:
        pytest.skip(f"needs idle GPUs: devices are held by {_names(held)}")


def require_idle_node(site: Site, node: NodePromise) -> None:
    """Skip by name where anybody else holds any device of a node."""
    for promise in site.devices:
        if promise.node.name == node.name:
            require_idle(site, promise)


def _held(site: Site, promise: DevicePromise) -> Mapping[str, int]:
    pods = site.client.list(Pod, namespace="*", fields={"spec.nodeName": promise.node.name})
    return holders(pods, promise.node.name, promise.resource)


def _names(held: Mapping[str, int]) -> str:
    shown = sorted(held)
    more = f" and {len(shown) - _NAMED} more" if len(shown) > _NAMED else ""
    return ", ".join(shown[:_NAMED]) + more
