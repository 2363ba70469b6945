"""One cluster: the root component of a stack."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypedDict

import pulumi
import pulumi_kubernetes as kubernetes

from divvy.model import Cluster, InvalidCluster, parse_document
from divvy.model.api_names import Component, component_of
from divvy.model.problems import Problem, problem
from divvy.plan import plan
from divvy.pulumi_resources.cluster_identity import ClusterIdentity, ClusterUnknown
from divvy.render.objects.cluster import objects

from .kubernetes_objects import Claims, DevicePlugin, NodeRuntime, Observability
from .plugin_image import PluginImage


class GpuClusterArgs(TypedDict):
    """Arguments of GpuCluster."""

    cluster: Mapping[str, Any]
    """The cluster as a stack file describes it under ``divvy:cluster``."""


class GpuCluster(pulumi.ComponentResource):
    """Everything Divvy has in one cluster.

    Creates:
    * the provider for the cluster that the stack file names, unless ``opts`` gives one, and
      ClusterIdentity, which keeps it from any other cluster
    * PluginImage, unless the stack file names an image
    * DevicePlugin
    * NodeRuntime, where a pool asks for it
    * Claims, where a profile has claims
    * Observability, for what `observability` asks for

    ``image`` is the agent's image by digest, ``advertised`` what all nodes together
    will advertise, by resource. Raises InvalidCluster before anything is registered. A provider
    in ``opts`` needs ``enable_config_map_mutable=True``: else every change of a profile replaces
    the ConfigMap.
    """

    image: pulumi.Output[str]
    advertised: pulumi.Output[Mapping[str, int]]
    has_identity: ClassVar[bool] = True

    def __init__(
        self, name: str, args: GpuClusterArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        value = args.get("cluster")
        if unknown := list(_outputs(value)):
            raise InvalidCluster(unknown)
        document = parse_document(value)
        cluster = document.cluster
        super().__init__("divvy:index:GpuCluster", name, {}, opts)
        provider = self._kubernetes_provider(name, cluster)
        self.image = self._image(name, cluster)
        self.advertised = pulumi.Output.from_input(dict(plan(cluster, name).totals))
        parts: dict[type, list[dict[str, Any]]] = {DevicePlugin: []}
        for obj in objects(document, self.image):
            parts.setdefault(_PARTS.get(component_of(obj), DevicePlugin), []).append(obj)
        own = pulumi.ResourceOptions(parent=self, provider=provider)
        agent = DevicePlugin(f"{name}-agent", {"objects": parts[DevicePlugin]}, own)
        after = pulumi.ResourceOptions.merge(own, pulumi.ResourceOptions(depends_on=[agent]))
        if NodeRuntime in parts:
            NodeRuntime(f"{name}-runtime", {"objects": parts[NodeRuntime]}, after)
        if Claims in parts:
            Claims(f"{name}-claims", {"objects": parts[Claims]}, after)
        if Observability in parts:
            Observability(f"{name}-observability", {"objects": parts[Observability]}, after)
        self.register_outputs({"image": self.image, "advertised": self.advertised})

    def _kubernetes_provider(self, name: str, cluster: Cluster) -> pulumi.ProviderResource:
        given = self.get_provider("kubernetes:core/v1:Namespace")
        if given is None:
            kubeconfig = None if cluster.kubeconfig is None else _expanded(cluster.kubeconfig)
            own = pulumi.ResourceOptions(parent=self)
            # All objects wait for the provider, and with it for the comparison of clusters.
            after = pulumi.ResourceOptions(
                parent=self, depends_on=self._identity(name, kubeconfig, cluster.context, own)
            )
            return kubernetes.Provider(
                f"{name}-kubernetes",
                kubeconfig=kubeconfig,
                context=cluster.context,
                enable_config_map_mutable=True,
                opts=after,
            )
        if cluster.kubeconfig is not None or cluster.context is not None:
            raise pulumi.RunError(
                f"{name}: the cluster is named twice, by divvy:cluster (kubeconfig, context) and "
                "by the provider given to the component: name it once"
            )
        return given

    def _identity(
        self, name: str, kubeconfig: str | None, context: str | None, own: pulumi.ResourceOptions
    ) -> list[pulumi.Resource]:
        if not self.has_identity:
            return []
        try:
            return [ClusterIdentity(f"{name}-identity", kubeconfig, context, own)]
        except ClusterUnknown as unknown:
            raise pulumi.RunError(f"{name}: {unknown}") from None

    def _image(self, name: str, cluster: Cluster) -> pulumi.Output[str]:
        if missing := cluster.plugin.missing():
            raise pulumi.RunError(missing)
        image = cluster.plugin.image
        assert image is not None
        if image.reference is not None:
            return pulumi.Output.from_input(image.reference)
        assert image.registry is not None
        assert image.base is not None
        built = PluginImage(
            f"{name}-image",
            {
                "registry": image.registry,
                "base": image.base,
                "insecure": image.insecure,
                "platforms": image.platforms,
            },
            pulumi.ResourceOptions(parent=self),
        )
        return built.reference


# Everything else is the agent's.
_PARTS: Mapping[str | None, type] = {
    Component.NODE_RUNTIME: NodeRuntime,
    Component.CLAIMS: Claims,
    Component.OBSERVABILITY: Observability,
}


def _outputs(value: object, *keys: str | int) -> Iterator[Problem]:
    """Yield a problem for each output in a value, to which ``keys`` lead.

    The cluster is planned before outputs have values, and a plan has no secrets.
    """
    if isinstance(value, pulumi.Output):
        reason = "is an output of another resource, or a secret; it must be known as it is"
        remedy = "write the value itself; to name the cluster, give the component a provider"
        yield problem(keys, reason, remedy)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _outputs(item, *keys, key)
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _outputs(item, *keys, index)


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())
