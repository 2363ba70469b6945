"""The agent and everything it needs in the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from components.objects import register_objects


class DevicePlugin(pulumi.ComponentResource):  # type: ignore[misc]
    """The agent's deployment.

    Creates:
    * Namespace, ServiceAccount, roles and bindings
    * the admission policy that holds an agent to its own node
    * the ConfigMap with the stack's configuration
    * the DaemonSet and the Service for its metrics
    """

    def __init__(
        self,
        name: str,
        args: Mapping[str, Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("divvy:index:DevicePlugin", name, {}, opts)
        register_objects(name, args["objects"], parent=self)
        self.register_outputs({})
