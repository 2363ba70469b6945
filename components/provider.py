"""A Pulumi provider that makes GpuCluster for programs in any language."""

from __future__ import annotations

import sys
from typing import Any

import pulumi
from pulumi.provider import ConstructResult, Provider
from pulumi.provider import main as serve

from divvy.model import InvalidCluster
from divvy.render.exports.pulumi_schema import COMPONENT, pulumi_schema
from divvy.version_info import version

from .gpu_cluster import GpuCluster


class _Cluster(GpuCluster):
    # A dynamic resource runs on the Python of the program, and this program may have none.
    has_identity = False


class ComponentProvider(Provider):
    """Makes GpuCluster in a process of its own, beside another program's resources."""

    def __init__(self) -> None:
        super().__init__(version(), pulumi_schema(version()))

    def construct(
        self,
        name: str,
        resource_type: str,
        inputs: Any,
        options: pulumi.ResourceOptions | None = None,
    ) -> ConstructResult:
        """Make the component; raises InputPropertiesError, which Pulumi shows as it is."""
        if resource_type != COMPONENT:
            raise pulumi.RunError(f"unknown component {resource_type}: {COMPONENT} is expected")
        try:
            cluster = _Cluster(name, {"cluster": as_in_a_file(inputs.get("cluster"))}, options)
        except (InvalidCluster, pulumi.RunError) as refused:
            # With a property in the list, Pulumi would show all of its value before the error;
            # without a list, the SDK's server fails itself.
            raise pulumi.InputPropertiesError(str(refused), []) from None
        return ConstructResult(
            cluster.urn, {"image": cluster.image, "advertised": cluster.advertised}
        )


def as_in_a_file(value: Any) -> Any:
    """Return a value of Pulumi's protocol, of which all numbers are floats, as a file has it."""
    if isinstance(value, dict):
        return {key: as_in_a_file(item) for key, item in value.items()}
    if isinstance(value, list):
        return [as_in_a_file(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def main() -> None:
    """Serve the engine that has started this process."""
    serve(ComponentProvider(), sys.argv[1:])
