"""Nodes that do not exist yet, as Kubernetes objects: for autoscalers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from divvy.plan.predict.node_templates import NodeTemplate
from divvy.render.exports.plain_yaml import yaml_documents


def node_objects(templates: Sequence[NodeTemplate], unknown: Sequence[str]) -> str:
    """Return a Node and its ResourceSlices for each pool, as they will be, as YAML.

    A comment names the pools of ``unknown`` hardware, which are left out.
    """
    left_out = "".join(
        f"# Pool {pool} is left out: nothing is known of its hardware.\n" for pool in unknown
    )
    return left_out + yaml_documents(obj for template in templates for obj in _objects(template))


def _objects(template: NodeTemplate) -> Iterator[dict[str, Any]]:
    counts = {name: str(count) for name, count in template.resources.items()}
    yield {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": template.pool, "labels": dict(template.labels)},
        "status": {"capacity": counts, "allocatable": counts},
    }
    for name, spec in template.slices.items():
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": name},
            "spec": {**spec, "pool": {**spec["pool"], "generation": 1}},
        }
