"""Components whose children are plain Kubernetes objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from typing import Any, ClassVar, TypedDict

import pulumi

from divvy.model.api_names import POOL_LABEL
from divvy.render.objects.claims.refusals import CLAIMS

# A pod needs its account, rights and configuration first.
_WAIT_FOR_ALL = ("DaemonSet", "Deployment")
_SDK = "pulumi-kubernetes"
# By default, the provider gives each object a random manager of its fields, which is lost with a
# run that is killed: the next one would meet conflicts with it.
_MANAGER = {"pulumi.com/patchFieldManager": "pulumi-divvy"}
# An image that cannot be pulled is waited for in vain: the default is ten minutes.
_PATIENCE = "3m"


class KubernetesObject(pulumi.CustomResource):
    """One object of the Kubernetes provider, its properties as ``divvy.render`` made them.

    The same resource as the SDK's class of that kind, without its types: those would
    check nothing here, and importing them takes half as long as a whole preview.
    """

    def __init__(self, name: str, obj: Mapping[str, Any], opts: pulumi.ResourceOptions) -> None:
        group = obj["apiVersion"] if "/" in obj["apiVersion"] else f"core/{obj['apiVersion']}"
        waits = obj["kind"] in _WAIT_FOR_ALL
        own = pulumi.ResourceOptions(
            version=version(_SDK),
            custom_timeouts=pulumi.CustomTimeouts(_PATIENCE, _PATIENCE) if waits else None,
        )
        metadata = obj["metadata"]
        annotations = {**(metadata.get("annotations") or {}), **_MANAGER}
        super().__init__(
            f"kubernetes:{group}:{obj['kind']}",
            name,
            {**obj, "metadata": {**metadata, "annotations": annotations}},
            pulumi.ResourceOptions.merge(opts, own),
        )


class ObjectsArgs(TypedDict):
    """Arguments of the components of this module."""

    objects: Sequence[Mapping[str, Any]]
    """The objects, in the order in which they can be created."""


class ObjectsComponent(pulumi.ComponentResource):
    """A component whose children are its objects; namespaced ones wait for their Namespace."""

    token: ClassVar[str]

    def __init__(
        self, name: str, args: ObjectsArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(self.token, name, {}, opts)
        registered: list[pulumi.Resource] = []
        namespaces: list[pulumi.Resource] = []
        for own, obj in zip(object_names(args["objects"]), args["objects"], strict=True):
            kind = obj["kind"]
            depends = registered if kind in _WAIT_FOR_ALL else namespaces
            resource = KubernetesObject(
                f"{name}-{own}",
                obj,
                pulumi.ResourceOptions(parent=self, depends_on=list(depends)),
            )
            registered.append(resource)
            if kind == "Namespace":
                namespaces.append(resource)
        self.register_outputs({})


def object_names(objects: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what each object of a component is called in it: its kind, and what tells it apart.

    That is its pool, or its own name where it is not the first of its kind. The policy over claims
    is not, once a profile has shares: a name that changed would delete it.
    """
    seen: set[str] = set()
    names = []
    for obj in objects:
        kind, metadata = obj["kind"].lower(), obj["metadata"]
        pool = (metadata.get("labels") or {}).get(POOL_LABEL)
        apart = pool or (metadata["name"] if kind in seen or metadata["name"] == CLAIMS else None)
        names.append(f"{kind}-{apart}" if apart else kind)
        seen.add(kind)
    return names


class DevicePlugin(ObjectsComponent):
    """The agent and everything it needs in the cluster.

    Creates:
    * Namespace, ServiceAccount, roles and bindings
    * the admission policies that hold an agent to its own node
    * the ConfigMap with the stack's configuration
    * the DaemonSet and the Service for its metrics
    """

    token = "divvy:index:DevicePlugin"


class NodeRuntime(ObjectsComponent):
    """What prepares the container runtime of the pools that ask for it: CDI switched on.

    Creates:
    * ServiceAccount, role and binding for one lease
    * a DaemonSet for every pool with `runtime.configure`
    """

    token = "divvy:index:NodeRuntime"


class Observability(ObjectsComponent):
    """Dashboard and alerts over the agents' metrics.

    Creates, as `observability` of the stack file says:
    * the ConfigMap with the Grafana dashboard
    * ServiceMonitor and PrometheusRule of the Prometheus Operator
    """

    token = "divvy:index:Observability"


class Claims(ObjectsComponent):
    """What lets pods claim GPUs, where a profile has `claims`.

    Creates:
    * a DeviceClass for whole GPUs, for shares (of each tenant) and for each MIG profile
    * for shares, the policies that turn limits by size into claims, or refuse them in a sentence
    * for shares, the template maker: ServiceAccount, role, binding and Deployment
    """

    token = "divvy:index:Claims"
