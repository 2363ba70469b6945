"""Reads what the nodes of a cluster offer, for ``divvy diff --live``."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from divvy.cli.output import Format, fail, write
from divvy.model import Cluster
from divvy.model.resource_names import STATUS_ANNOTATION
from divvy.plan import LiveNode, compare_live

_COUNT = re.compile(r"\d+")


def show_live(cluster: Cluster, name: str, output: Format, out: Path | None) -> bool:
    """Compare the live nodes with a cluster's file and show it; tell whether they differ."""
    from divvy.render.live import live_json, live_text

    if output not in (Format.TEXT, Format.JSON):
        fail(f"--live has no view in {output.value}; it has text and json")
    difference = compare_live(cluster, name, live_nodes(cluster))
    write(live_json(difference) if output is Format.JSON else live_text(difference), out)
    return bool(difference)


def live_nodes(cluster: Cluster) -> list[LiveNode]:
    """Read every node of a cluster; end the command with one sentence where that fails."""
    return [live_node(node) for node in _nodes(cluster)]


def live_node(node: Any) -> LiveNode:
    """Turn a Node of the API into what a comparison needs."""
    metadata, status = node.metadata, node.status
    told = _status((metadata.annotations or {}).get(STATUS_ANNOTATION))
    allocatable = (status.allocatable if status else None) or {}
    return LiveNode(
        name=metadata.name,
        labels=dict(metadata.labels or {}),
        allocatable={
            resource: int(count)
            for resource, count in allocatable.items()
            if "/" in resource and _COUNT.fullmatch(str(count))
        },
        state=told.get("state"),
        reason=str(told.get("reason") or ""),
    )


def _status(annotation: str | None) -> Mapping[str, Any]:
    if annotation is None:
        return {}
    try:
        told = json.loads(annotation)
    except ValueError:
        told = None
    if not isinstance(told, dict):
        return {"state": "Unknown", "reason": f"annotation {STATUS_ANNOTATION} cannot be read"}
    return told


def _nodes(cluster: Cluster) -> Iterable[Any]:
    import httpx2
    from lightkube import ApiError, Client, KubeConfig
    from lightkube.core.exceptions import ConfigError, LoadResourceError
    from lightkube.resources.core_v1 import Node

    try:
        if cluster.kubeconfig is None:
            config = KubeConfig.from_env()
        else:
            config = KubeConfig.from_file(Path(cluster.kubeconfig).expanduser())
        client = Client(config=config.get(context_name=cluster.context))
        return list(client.list(Node))
    except (ConfigError, LoadResourceError) as error:
        fail(f"no usable kubeconfig: {error}")
    except ApiError as error:
        fail(f"the cluster refuses to list nodes: {error.status.message}")
    except httpx2.HTTPError as error:
        fail(f"the cluster cannot be reached: {error}")
