"""Register plain Kubernetes objects as Pulumi resources."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from importlib.metadata import version
from typing import Any, ClassVar

import pulumi

# A pod needs its account, rights and configuration first.
_WAITS_FOR_ALL = "DaemonSet"
_SDK = "pulumi-kubernetes"


class KubernetesObject(pulumi.CustomResource):
    """One object of the Kubernetes provider, its properties as ``divvy.render`` made them.

    The same resource as the SDK's class of that kind, without its types: those would
    check nothing here, and importing them takes half as long as a whole preview.
    """

    def __init__(self, name: str, found: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        group = found["apiVersion"] if "/" in found["apiVersion"] else f"core/{found['apiVersion']}"
        pinned = pulumi.ResourceOptions(version=version(_SDK))
        super().__init__(
            f"kubernetes:{group}:{found['kind']}",
            name,
            dict(found),
            pulumi.ResourceOptions.merge(opts, pinned),
        )


def register_objects(
    name: str, objects: Iterable[Mapping[str, Any]], parent: pulumi.Resource
) -> list[pulumi.Resource]:
    """Register objects below ``parent``; namespaced ones after their Namespace."""
    registered: list[pulumi.Resource] = []
    namespace: list[pulumi.Resource] = []
    for found in objects:
        kind = found["kind"]
        depends = list(registered) if kind == _WAITS_FOR_ALL else list(namespace)
        pool = (found["metadata"].get("labels") or {}).get("divvy.gpu/pool")
        resource = KubernetesObject(
            f"{name}-{kind.lower()}" + (f"-{pool}" if pool else ""),
            found,
            pulumi.ResourceOptions(parent=parent, depends_on=depends),
        )
        registered.append(resource)
        if kind == "Namespace":
            namespace.append(resource)
    return registered


class ObjectsComponent(pulumi.ComponentResource):
    """A component whose children are the Kubernetes objects of ``args["objects"]``."""

    token: ClassVar[str]

    def __init__(
        self,
        name: str,
        args: Mapping[str, Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__(self.token, name, {}, opts)
        register_objects(name, args["objects"], parent=self)
        self.register_outputs({})
