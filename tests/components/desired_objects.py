"""Divvy's objects in a cluster, as far as a stack decides them, whoever has deployed them."""

from __future__ import annotations

from typing import Any

from tests.bare_cluster import BareCluster
from tests.deploy.own_stack import KINDS, NAMESPACE

# What an API server, a controller or an engine says of an object, beside what the stack wants.
_OF_SERVER = ("creationTimestamp", "generation", "managedFields", "resourceVersion", "uid")
_OF_ENGINES = (
    "pulumi.com/",
    "meta.helm.sh/",
    "helm.sh/chart",
    "deprecated.daemonset.template.generation",
    "app.kubernetes.io/managed-by",
)


def listed(cluster: BareCluster) -> dict[str, Any]:
    """Return the objects by kind and name."""
    place, labels = f"--namespace={NAMESPACE}", "--selector=app.kubernetes.io/name=divvy"
    items = cluster.get(",".join(KINDS), place, labels)["items"]
    return {f"{obj['kind']} {obj['metadata']['name']}": obj for obj in items}


def uids(cluster: BareCluster) -> dict[str, str]:
    """Return the uids by kind and name."""
    return {name: str(obj["metadata"]["uid"]) for name, obj in listed(cluster).items()}


def desired_of(cluster: BareCluster) -> dict[str, Any]:
    """Return the objects, without what an API server or an engine says of them."""
    objects = {}
    for name, obj in listed(cluster).items():
        metadata = {key: obj["metadata"][key] for key in obj["metadata"] if key not in _OF_SERVER}
        for kind in ("labels", "annotations"):
            marks = metadata.pop(kind, {}).items()
            kept = {key: value for key, value in marks if not key.startswith(_OF_ENGINES)}
            if kept:
                metadata[kind] = kept
        objects[name] = {**{k: v for k, v in obj.items() if k != "status"}, "metadata": metadata}
    return objects
