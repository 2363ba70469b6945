"""The shapes that Divvy expects, beside those that a real API server publishes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from divvy.kube.shapes import SHAPES, shape_problem
from tests.running_lab import RunningLab

# What every kind that is read is called, and where.
KINDS = {
    "nodes": ("api/v1", "Node"),
    "pods": ("api/v1", "Pod"),
    "events": ("api/v1", "Event"),
    "configmaps": ("api/v1", "ConfigMap"),
    "resourcequotas": ("api/v1", "ResourceQuota"),
    "resourceclaims": ("apis/resource.k8s.io/v1", "ResourceClaim"),
    "resourceclaimtemplates": ("apis/resource.k8s.io/v1", "ResourceClaimTemplate"),
    "resourceslices": ("apis/resource.k8s.io/v1", "ResourceSlice"),
    "deviceclasses": ("apis/resource.k8s.io/v1", "DeviceClass"),
    "devicetaintrules": ("apis/resource.k8s.io/v1", "DeviceTaintRule"),
    "priorityclasses": ("apis/scheduling.k8s.io/v1", "PriorityClass"),
    "leases": ("apis/coordination.k8s.io/v1", "Lease"),
    "daemonsets": ("apis/apps/v1", "DaemonSet"),
    "deployments": ("apis/apps/v1", "Deployment"),
    "endpointslices": ("apis/discovery.k8s.io/v1", "EndpointSlice"),
}
TYPES: Mapping[str, set[type]] = {
    "string": {str},
    "integer": {int},
    "boolean": {bool},
    "number": {int, float},
}


def test_reads_a_node_of_kubernetes_1_37() -> None:
    info = {"architecture": "amd64", "runningInUserNamespace": False, "swap": {"capacity": 5}}
    node = {"metadata": {"name": "n"}, "status": {"nodeInfo": info}}
    assert shape_problem(node, "nodes") == ""


def test_reads_a_rule_with_a_selector_to_come() -> None:
    selector = {"driver": "divvy.gpu", "selectors": [{"cel": {"expression": "true"}}]}
    taint = {"key": "a", "effect": "NoSchedule"}
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector, "taint": taint}}
    assert shape_problem(rule, "devicetaintrules") == ""


def test_every_shape_is_compared_below() -> None:
    assert SHAPES.keys() == KINDS.keys()


@pytest.mark.lab
@pytest.mark.parametrize("resource", KINDS)
def test_expects_what_the_api_server_publishes(lab: RunningLab, resource: str) -> None:
    group, kind = KINDS[resource]
    document = json.loads(lab.kubectl("get", "--raw", f"/openapi/v3/{group}"))
    schemas = document["components"]["schemas"]
    (schema,) = (
        schema
        for name, schema in schemas.items()
        if name.endswith(f".{kind}")
        and any(item["kind"] == kind for item in schema.get("x-kubernetes-group-version-kind", ()))
    )
    assert [*_differences(schemas, schema, SHAPES[resource], "it")] == []


def _differences(
    schemas: Mapping[str, Any], schema: Mapping[str, Any], shape: Any, where: str
) -> Iterator[str]:
    """Yield where an object of this schema would not have the shape."""
    while "$ref" in schema or "allOf" in schema:
        reference = schema["$ref"] if "$ref" in schema else schema["allOf"][0]["$ref"]
        schema = schemas[reference.rpartition("/")[2]]
    kind = schema.get("type")
    if isinstance(shape, Mapping):
        if kind != "object":
            yield f"{where} is {kind}, not an object"
            return
        properties, others = schema.get("properties", {}), schema.get("additionalProperties")
        for key, part in shape.items():
            name = key.removesuffix("!")
            of_any = [others] if others is not None else [*properties.values()]
            parts = of_any if name == "*" else [properties[name]] if name in properties else []
            if not parts and properties:
                yield f"{where} has no {name}"
            for item in parts:
                yield from _differences(schemas, item, part, f"{where}.{name}")
    elif isinstance(shape, list):
        if kind != "array":
            yield f"{where} is {kind}, not a list"
            return
        yield from _differences(schemas, schema["items"], shape[0], f"{where}[]")
    else:
        expected = set(shape) if isinstance(shape, tuple) else {shape}
        kinds = [kind] if kind else [item["type"] for item in schema["oneOf"]]
        for item in kinds:
            if not TYPES.get(item, {object}) <= expected:
                yield f"{where} is {item}"
