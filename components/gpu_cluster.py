"""One cluster: the root component of a stack."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes

from components.device_plugin import DevicePlugin
from components.node_runtime import NodeRuntime
from components.observability import Observability
from components.plugin_image import PluginImage
from divvy.model import Cluster
from divvy.render.objects import component_of, objects


class GpuCluster(pulumi.ComponentResource):
    """Everything Divvy has in one cluster.

    Creates:
    * the provider for the cluster that the stack file names
    * PluginImage, unless the stack file names an image
    * DevicePlugin
    * NodeRuntime, where a pool asks for it
    * Observability, for what `observability` asks for

    ``image`` is the agent's image by digest.
    """

    image: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        args: Mapping[str, Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("divvy:index:GpuCluster", name, {}, opts)
        cluster: Cluster = args["parsed"]
        provider = kubernetes.Provider(
            f"{name}-kubernetes",
            kubeconfig=None if cluster.kubeconfig is None else _expanded(cluster.kubeconfig),
            context=cluster.context,
            enable_config_map_mutable=True,
            opts=pulumi.ResourceOptions(parent=self),
        )
        self.image = self._image(name, cluster)
        found = objects(args["cluster"], self.image)
        runtime = [one for one in found if component_of(one) == "node-runtime"]
        monitoring = [one for one in found if component_of(one) == "observability"]
        agent = DevicePlugin(
            f"{name}-agent",
            {"objects": [one for one in found if one not in (*runtime, *monitoring)]},
            pulumi.ResourceOptions(parent=self, provider=provider),
        )
        if runtime:
            NodeRuntime(
                f"{name}-runtime",
                {"objects": runtime},
                pulumi.ResourceOptions(parent=self, provider=provider, depends_on=[agent]),
            )
        if monitoring:
            Observability(
                f"{name}-observability",
                {"objects": monitoring},
                pulumi.ResourceOptions(parent=self, provider=provider, depends_on=[agent]),
            )
        self.register_outputs({"image": self.image})

    def _image(self, name: str, cluster: Cluster) -> pulumi.Output[str]:
        wish = cluster.plugin.image
        if wish is None:
            raise pulumi.RunError(
                "divvy:cluster: plugin.image is missing: name a `registry` and a `base` to build "
                "it, or a `reference` by digest"
            )
        if wish.reference is not None:
            return pulumi.Output.from_input(wish.reference)
        if wish.base is None or wish.registry is None:
            raise pulumi.RunError(
                "divvy:cluster: plugin.image.base is missing: name a Debian image with Python 3.11"
            )
        args = {"registry": wish.registry, "base": wish.base}
        built = PluginImage(f"{name}-image", args, pulumi.ResourceOptions(parent=self))
        return built.reference


def _expanded(path: str) -> str:
    return str(Path(path).expanduser())
