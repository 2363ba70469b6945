"""The objects of a cluster as plain YAML, for `kubectl apply -f` and Argo CD."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from divvy.render.objects import objects
from divvy.render.plain_yaml import plain_yaml


def manifests(value: Mapping[str, Any], image: str) -> str:
    """Return all objects, in the order in which they can be created; raises InvalidCluster."""
    return "---\n".join(plain_yaml(found) for found in objects(value, image))
