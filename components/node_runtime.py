"""The step that prepares the container runtime of pools that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pulumi

from components.objects import register_objects


class NodeRuntime(pulumi.ComponentResource):  # type: ignore[misc]
    """CDI in the nodes' container runtime.

    Creates:
    * ServiceAccount, role and binding for one lease
    * a DaemonSet for every pool with `runtime.configure`
    """

    def __init__(
        self,
        name: str,
        args: Mapping[str, Any],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("divvy:index:NodeRuntime", name, {}, opts)
        register_objects(name, args["objects"], parent=self)
        self.register_outputs({})
