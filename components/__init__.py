"""Pulumi components: each hands the objects of ``divvy.render`` to Pulumi and decides nothing."""

from components.gpu_cluster import GpuCluster, GpuClusterArgs

__all__ = ["GpuCluster", "GpuClusterArgs"]
