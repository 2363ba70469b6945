"""Pulumi components: each hands the objects of ``divvy.render`` to Pulumi and decides nothing.

Programs import them as ``divvy.components``.
"""

from .gpu_cluster import GpuCluster, GpuClusterArgs
from .stack_cluster import cluster_of_stack

__all__ = ["GpuCluster", "GpuClusterArgs", "cluster_of_stack"]
