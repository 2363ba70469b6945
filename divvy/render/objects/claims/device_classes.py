"""Device classes: what requests name, and the extended resources that stand for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from divvy.model import Cluster, gpu_resource, mig_resource
from divvy.model.api_names import CLAIMS_DRIVER, Component, component_labels
from divvy.model.claim_names import (
    GPU_CLASS,
    KIND,
    MIG_CLASS,
    NVIDIA,
    PROFILE,
    TENANT,
    WHOLE,
    mig_class,
    share_class,
)
from divvy.model.nvidia_claims import CLASSES, TYPE, TYPES
from divvy.render.objects.claims.claimable import Claimable, claimable


def device_classes(cluster: Cluster, offered: Claimable) -> list[dict[str, Any]]:
    """Return the classes of what the cluster's profiles let pods claim."""
    # A device of which a request for a whole GPU may take all, be it a share.
    classes = [_class(GPU_CLASS, f"{_attribute(WHOLE)}.orValue(false)", cluster.names.gpu)]
    if offered.shares:
        shares = f'{_attribute(KIND)}.orValue("") == "share"'
        tenant = f'{_attribute(TENANT)}.orValue("")'
        classes.append(
            _class(share_class(None), f'{shares} && {tenant} == ""', gpu_resource(shared=True))
        )
        # Without an extended resource: who asks by its name has no tenant.
        classes += [
            _class(share_class(tenant_name), f'{shares} && {tenant} == "{tenant_name}"')
            for tenant_name in offered.tenants
        ]
    mig = f'{_attribute(KIND)}.orValue("") == "mig"'
    if offered.mig:
        classes.append(_class(MIG_CLASS, mig))
    classes += [
        _class(
            mig_class(profile),
            f'{mig} && {_attribute(PROFILE)}.orValue("") == "{profile}"',
            mig_resource(profile),
        )
        for profile in offered.mig
    ]
    return classes + (
        [] if cluster.names.classes is None else [_of_nvidia(name) for name in CLASSES]
    )


def rival_classes(
    cluster: Cluster, classes: Iterable[Mapping[str, Any]]
) -> dict[str, tuple[str, ...]]:
    """Return which other classes of a cluster stand for resources of Divvy's classes, by resource.

    Kubernetes serves a resource from one class, whatever nodes its devices are on.
    """
    own = {
        device_class["metadata"]["name"]: device_class["spec"].get("extendedResourceName")
        for device_class in device_classes(cluster, claimable(cluster))
    }
    rivals: dict[str, tuple[str, ...]] = {}
    for device_class in classes:
        name, resource = device_class["metadata"]["name"], _resource_of(device_class)
        if name not in own and resource in own.values():
            rivals[resource] = (*rivals.get(resource, ()), name)
    return rivals


def _resource_of(device_class: Mapping[str, Any]) -> str:
    return str((device_class.get("spec") or {}).get("extendedResourceName") or "")


def _of_nvidia(name: str) -> dict[str, Any]:
    """Return a class of NVIDIA's driver: of its devices, too, while nodes move to or from it."""
    drivers = f'device.driver in ["{CLAIMS_DRIVER}", "{NVIDIA}"]'
    return _selecting(
        name, f'{drivers} && {_attribute(TYPE, NVIDIA)}.orValue("") == "{TYPES[name]}"'
    )


def _attribute(name: str, domain: str = CLAIMS_DRIVER) -> str:
    # Optional: an expression that fails on one device fails the claim on every node.
    return f'device.attributes["{domain}"].?{name}'


def _class(name: str, expression: str, resource: str | None = None) -> dict[str, Any]:
    return _selecting(name, f'device.driver == "{CLAIMS_DRIVER}" && {expression}', resource)


def _selecting(name: str, expression: str, resource: str | None = None) -> dict[str, Any]:
    spec: dict[str, Any] = {"selectors": [{"cel": {"expression": expression}}]}
    if resource is not None:
        spec["extendedResourceName"] = resource
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": name, "labels": component_labels(Component.CLAIMS)},
        "spec": spec,
    }
