"""The cluster that the stack file of the running Pulumi program describes."""

from __future__ import annotations

from pathlib import Path

import pulumi

from divvy.model import InvalidCluster

from .gpu_cluster import GpuCluster


def cluster_of_stack(opts: pulumi.ResourceOptions | None = None) -> GpuCluster:
    """Return the cluster of ``divvy:cluster`` in the stack file, named after the stack.

    What is wrong with the file ends the program, each mistake with its line.
    """
    stack = pulumi.get_stack()
    # None from a language host of an older release: errors then have no lines.
    project = pulumi.get_root_directory() or ""
    try:
        value = pulumi.Config("divvy").require_object("cluster")
    except (pulumi.ConfigMissingError, pulumi.ConfigTypeError):
        # Pulumi's words lead to `config set`, which sets no mappings.
        from divvy.stack.sections import cluster_problem  # noqa: PLC0415

        file_error = cluster_problem(Path(project), stack) if project else None
        if file_error is None:
            raise  # the file is sound: the value was set elsewhere
        raise pulumi.RunError(str(file_error)) from None
    try:
        return GpuCluster(stack, {"cluster": value}, opts)
    except InvalidCluster as invalid:
        # Loaded for errors alone: it reads the file again, with its lines.
        from divvy.stack.sections import invalid_cluster  # noqa: PLC0415

        error = invalid_cluster(Path(project), stack, invalid) if project else invalid
        raise pulumi.RunError(str(error)) from None
