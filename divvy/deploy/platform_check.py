"""Refuses an image that does not run on nodes of the pools, before anything is changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import typer

from divvy.errors import fail
from divvy.image.build import BuildFailed
from divvy.image.published import published_platforms
from divvy.kube.client import Client
from divvy.kube.errors import KubeError
from divvy.kube.kind import NODE
from divvy.model import Cluster
from divvy.model.phrases import some
from divvy.model.problems import printable
from divvy.plan.predict.image_platforms import lacking_platform


def check_platforms(client: Client, cluster: Cluster) -> None:
    """End with an error where nodes of a pool need a platform that the agent's image lacks.

    If nodes may not be read, what the stack file says of them counts.
    """
    image = cluster.plugin.image
    if image is None:
        return
    problem = lacking_platform(cluster, image.platforms, _other_nodes(client, image.platforms))
    if problem is not None and image.reference is not None:
        try:
            published = published_platforms(image.reference)
        except BuildFailed as unknown:
            _warn(str(unknown))
            return
        problem = lacking_platform(cluster, published, _other_nodes(client, published))
    if problem is not None:
        fail(problem)


def _other_nodes(client: Client, platforms: Sequence[str]) -> list[dict[str, Any]]:
    """Return the nodes whose processors an image is not for; most clusters have none."""
    known = ", ".join(name.partition("/")[2] for name in platforms)
    selector = {"labelSelector": f"kubernetes.io/arch,kubernetes.io/arch notin ({known})"}
    try:
        pages = list(client.pages(NODE.path(""), selector))
    except KubeError as error:
        _warn(str(error))
        return []
    if unread := [name for page in pages for name in page.skipped]:
        _warn(f"not read: {some(unread)}")
    return [node for page in pages for node in page.items]


def _warn(why: str) -> None:
    typer.echo(
        f"warning: it is not known whether the agent's image is for all nodes: {printable(why)}",
        err=True,
    )
