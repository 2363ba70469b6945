"""Nodes that do not exist yet, as Kubernetes objects: for autoscalers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from divvy.plan.predict.node_templates import NodeTemplate
from divvy.render.exports.plain_yaml import plain_yaml


def node_objects(templates: Sequence[NodeTemplate]) -> str:
    """Return a Node and its ResourceSlices for each pool, as they will be, as YAML."""
    return _documents(
        document
        for template in templates
        for document in (_node(template), *map(plain_yaml, _slices(template)))
    )


def _documents(texts: Iterable[str]) -> str:
    return "---\n".join(texts)


def _node(template: NodeTemplate) -> str:
    counts = {name: str(count) for name, count in template.resources.items()}
    return plain_yaml(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": template.pool, "labels": dict(template.labels)},
            "status": {"capacity": counts, "allocatable": counts},
        }
    )


def _slices(template: NodeTemplate) -> list[dict[str, Any]]:
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {**spec, "pool": {**spec["pool"], "generation": 1}},
        }
        for name, spec in template.slices.items()
    ]
