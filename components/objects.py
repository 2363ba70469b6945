"""Register plain Kubernetes objects as typed Pulumi resources."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

_TYPES: Mapping[tuple[str, str], Any] = {
    ("v1", "Namespace"): lambda: kubernetes.core.v1.Namespace,
    ("v1", "ServiceAccount"): lambda: kubernetes.core.v1.ServiceAccount,
    ("v1", "ConfigMap"): lambda: kubernetes.core.v1.ConfigMap,
    ("v1", "Service"): lambda: kubernetes.core.v1.Service,
    ("apps/v1", "DaemonSet"): lambda: kubernetes.apps.v1.DaemonSet,
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): lambda: kubernetes.rbac.v1.ClusterRole,
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): (
        lambda: kubernetes.rbac.v1.ClusterRoleBinding
    ),
    ("rbac.authorization.k8s.io/v1", "Role"): lambda: kubernetes.rbac.v1.Role,
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): lambda: kubernetes.rbac.v1.RoleBinding,
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicy"): (
        lambda: kubernetes.admissionregistration.v1.ValidatingAdmissionPolicy
    ),
    ("admissionregistration.k8s.io/v1", "ValidatingAdmissionPolicyBinding"): (
        lambda: kubernetes.admissionregistration.v1.ValidatingAdmissionPolicyBinding
    ),
}
# A pod needs its account, rights and configuration first.
_WAITS_FOR_ALL = "DaemonSet"
_GIVEN = ("apiVersion", "kind", "metadata")


def register_objects(
    name: str, objects: Iterable[Mapping[str, Any]], parent: pulumi.Resource
) -> list[pulumi.Resource]:
    """Register objects below ``parent``; namespaced ones after their Namespace."""
    registered: list[pulumi.Resource] = []
    namespace: list[pulumi.Resource] = []
    for found in objects:
        kind = found["kind"]
        depends = list(registered) if kind == _WAITS_FOR_ALL else list(namespace)
        make = _TYPES[found["apiVersion"], kind]()
        pool = (found["metadata"].get("labels") or {}).get("divvy.gpu/pool")
        metadata = dict(found["metadata"])
        resource = make(
            f"{name}-{kind.lower()}" + (f"-{pool}" if pool else ""),
            metadata=metadata,
            **{_snake(key): found[key] for key in found if key not in _GIVEN},
            opts=pulumi.ResourceOptions(parent=parent, depends_on=depends),
        )
        registered.append(resource)
        if kind == "Namespace":
            namespace.append(resource)
    return registered


def _snake(key: str) -> str:
    """Return the SDK's name of a field; fields further down keep the API's."""
    return re.sub(r"([A-Z])", lambda found: f"_{found.group(1).lower()}", key)
