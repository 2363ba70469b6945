"""What a cluster has for monitoring."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from components.objects import register_objects


class Observability(pulumi.ComponentResource):  # type: ignore[misc]
    """Dashboard and alerts over the agents' metrics.

    Creates, as `observability` of the stack file says:
    * the ConfigMap with the Grafana dashboard
    * ServiceMonitor and PrometheusRule of the Prometheus Operator
    """

    def __init__(
        self,
        name: str,
        args: Mapping[str, Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("divvy:index:Observability", name, {}, opts)
        register_objects(name, args["objects"], parent=self)
        self.register_outputs({})
