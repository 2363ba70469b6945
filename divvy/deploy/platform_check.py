"""Refuses an image that does not run on nodes of the pools, before anything is changed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from divvy.errors import fail
from divvy.image.build import BuildFailed
from divvy.image.platforms import DEFAULT_PLATFORMS
from divvy.image.published import published_platforms
from divvy.kube.client import Client
from divvy.kube.errors import KubeError
from divvy.kube.kubeconfig import cluster_config
from divvy.model.problems import printable

# Names of GPUs that come on a module with processors for arm64, or the label of such nodes.
_MAY_NEED_ANOTHER = re.compile(r"G[BH]\d|kubernetes\.io/arch", re.IGNORECASE)
_MOST_NAMED = 3


def check_platforms(path: Path, cluster: Mapping[str, Any]) -> None:
    """End with an error where nodes of a pool need a platform that the agent's image lacks.

    ``cluster`` is the `divvy:cluster` of the stack file at ``path``, as it is written. If nodes
    may not be read, what the file says of them counts.
    """
    plugin = cluster.get("plugin")
    image = plugin.get("image") if isinstance(plugin, dict) else None
    image = image if isinstance(image, dict) else {}
    platforms = image.get("platforms")
    built = tuple(map(str, platforms)) if isinstance(platforms, list) else DEFAULT_PLATFORMS
    access = cluster.get("kubeconfig"), cluster.get("context")
    nodes = _other_nodes(*access, built)
    if not nodes and not _MAY_NEED_ANOTHER.search(path.read_text(encoding="utf-8")):
        return
    # Loads the model, which the runs of most stacks do not need for this.
    from divvy.plan.predict.image_platforms import lacking_platform  # noqa: PLC0415
    from divvy.stack.file import read_path  # noqa: PLC0415
    from divvy.stack.sections import read_cluster  # noqa: PLC0415

    described = read_cluster(read_path(path))
    problem = lacking_platform(described, built, nodes)
    if problem is not None and "reference" in image:
        try:
            published = published_platforms(image["reference"])
        except BuildFailed as unknown:
            typer.echo(
                f"warning: it is not known whether the agent's image is for all nodes: {unknown}",
                err=True,
            )
            return
        problem = lacking_platform(described, published, _other_nodes(*access, published))
    if problem is not None:
        fail(problem)


def _other_nodes(
    kubeconfig: str | None, context: str | None, platforms: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the nodes whose processors an image is not for; most clusters have none."""
    known = ", ".join(name.partition("/")[2] for name in platforms)
    selector = {"labelSelector": f"kubernetes.io/arch,kubernetes.io/arch notin ({known})"}
    unread: list[str] = []
    try:
        with Client(cluster_config(kubeconfig, context), note=unread.append) as client:
            pages = client.pages("/api/v1/nodes", selector)
            nodes = [node for page in pages for node in page.items]
    except KubeError as error:
        nodes, unread = [], [str(error)]
    if unread:
        why = "; ".join(map(printable, unread[:_MOST_NAMED]))
        typer.echo(
            f"warning: it is not known whether the agent's image is for all nodes: {why}", err=True
        )
    return nodes
