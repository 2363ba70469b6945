"""Nodes that do not exist yet, as Kubernetes objects and as two autoscalers want to be told."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from divvy.plan.node_templates import NodeTemplate
from divvy.render.plain_yaml import plain_yaml

_CLUSTER_API = "capacity.cluster-autoscaler.kubernetes.io"


class CannotTell(Exception):
    """An autoscaler that can be told of none of these pools; the text says why of each."""


def node_objects(templates: Sequence[NodeTemplate]) -> str:
    """Return a Node and its ResourceSlices for each pool, as they will be, as YAML."""
    return _documents(
        document
        for template in templates
        for document in (_node(template), *map(plain_yaml, _slices(template)))
    )


def karpenter_overlays(templates: Sequence[NodeTemplate]) -> str:
    """Return a Karpenter NodeOverlay for each pool that one describes, as YAML.

    An overlay adds extended resources (karpenter.sh/v1.15/concepts/nodeoverlays). Devices of
    claims are known to Karpenter from its cloud provider's code alone. Raises CannotTell if no
    pool can be told.
    """
    return _for_autoscaler(
        templates,
        _overlay_problem,
        "of devices of claims, Karpenter 1.15 learns from its cloud provider's code alone",
        lambda template: plain_yaml(_overlay(template)),
    )


def cluster_api_annotations(templates: Sequence[NodeTemplate]) -> str:
    """Return the annotations of each pool's MachineDeployment for the Cluster Autoscaler, as YAML.

    They have one resource and a count (autoscaler, cloudprovider/clusterapi/README.md). Raises
    CannotTell if no pool can be told.
    """
    return _for_autoscaler(
        templates,
        _annotation_problem,
        "for devices of claims, the annotations lack the attributes by which Divvy's device "
        "classes choose",
        _annotated,
    )


def _for_autoscaler(
    templates: Sequence[NodeTemplate],
    problem_of: Callable[[NodeTemplate], str],
    claims: str,
    text_of: Callable[[NodeTemplate], str],
) -> str:
    """Return what an autoscaler can be told, and as comments why not the rest.

    ``claims`` is why it cannot be told of devices of claims.
    """
    no_claims = f"{claims}; -o slices has them"

    def problem(template: NodeTemplate) -> str:
        if template.resources:
            return problem_of(template)
        return no_claims if template.slices else "its nodes offer nothing"

    problems = {template.pool: problem(template) for template in templates}
    if all(problems.values()):
        reasons = [f"pool {pool}: {reason}" for pool, reason in problems.items()]
        raise CannotTell("; ".join(reasons) or "no pool of this stack names its hardware")
    return _documents(
        f"# Pool {template.pool} is left out: {reason}.\n"
        if (reason := problems[template.pool])
        else (f"# Without its claims: {no_claims}.\n" if template.slices else "")
        + text_of(template)
        for template in templates
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


def _overlay_problem(template: NodeTemplate) -> str:
    if template.labels:
        return ""
    return "it has no select, and an overlay without requirements is one of every node"


def _overlay(template: NodeTemplate) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": f"divvy-{template.pool}"},
        "spec": {
            "requirements": [
                {"key": key, "operator": "In", "values": [value]}
                for key, value in sorted(template.labels.items())
            ],
            "capacity": {name: str(count) for name, count in template.resources.items()},
        },
    }


def _annotation_problem(template: NodeTemplate) -> str:
    if len(template.resources) == 1:
        return ""
    return (
        "the annotations have one resource, and its nodes advertise "
        f"{', '.join(template.resources)}"
    )


def _annotated(template: NodeTemplate) -> str:
    ((resource, count),) = template.resources.items()
    annotations = {f"{_CLUSTER_API}/gpu-type": resource, f"{_CLUSTER_API}/gpu-count": str(count)}
    if template.labels:
        labels = ",".join(f"{key}={value}" for key, value in sorted(template.labels.items()))
        annotations[f"{_CLUSTER_API}/labels"] = labels
    head = f"# The MachineDeployment (or MachineSet, MachinePool) of pool {template.pool}:\n"
    return head + plain_yaml({"metadata": {"annotations": annotations}})
