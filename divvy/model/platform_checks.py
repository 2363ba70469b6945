"""Checks that the agent's image is for the processors of the pools' nodes."""

from collections.abc import Iterator
from dataclasses import dataclass

from divvy.model.gpu_models import UnknownGpuModel
from divvy.model.hardware_model import hardware_model
from divvy.model.problems import Keys, Problem, problem
from divvy.model.stack import Cluster, Pool

ARCHITECTURE_LABEL = "kubernetes.io/arch"


@dataclass(frozen=True)
class PoolPlatform:
    """The platform that a pool's nodes need, and the value of the stack file that says so."""

    pool: str
    platform: str
    keys: Keys
    value: str


def pool_platforms(cluster: Cluster) -> Iterator[PoolPlatform]:
    """Yield what the stack file says of nodes' processors: by a label, or by GPUs on a module."""
    for name, pool in cluster.pools.items():
        label = (pool.select or {}).get(ARCHITECTURE_LABEL)
        if label is not None:
            keys: Keys = ("pools", name, "select", ARCHITECTURE_LABEL)
            yield PoolPlatform(name, f"linux/{label}", keys, label)
        elif architecture := _of_model(pool):
            keys = ("pools", name, "hardware", "model")
            model = pool.hardware.model if pool.hardware else ""
            yield PoolPlatform(name, f"linux/{architecture}", keys, model)


def check_image_platforms(cluster: Cluster) -> Iterator[Problem]:
    """Yield the pools that an image is not built for."""
    image = cluster.plugin.image
    if image is None or image.registry is None:
        return
    for needed in pool_platforms(cluster):
        if needed.platform not in image.platforms:
            yield problem(
                needed.keys,
                f"is {needed.value}, on nodes for {needed.platform}, and the agent's image is built"
                f" for {', '.join(image.platforms)}",
                f"add {needed.platform} to plugin.image.platforms",
            )


def _of_model(pool: Pool) -> str:
    try:
        return "" if pool.hardware is None else hardware_model(pool.hardware).node_architecture
    except UnknownGpuModel:
        return ""
