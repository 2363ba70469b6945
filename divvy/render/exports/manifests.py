"""The objects of a cluster as plain YAML, for `kubectl apply -f` and Argo CD."""

from __future__ import annotations

from divvy.model import ClusterDocument
from divvy.render.exports.plain_yaml import plain_yaml
from divvy.render.objects.cluster import objects


def manifests(document: ClusterDocument, image: str) -> str:
    """Return all objects, in the order in which they can be created."""
    return "---\n".join(plain_yaml(obj) for obj in objects(document, image))
