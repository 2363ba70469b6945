"""The schema of the chart's values: that of stack files, and what only a chart has."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from divvy.model.canonical import DEPLOYMENT_KEYS
from divvy.model.checks import MAX_POOL_CHARACTERS
from divvy.model.schema import cluster_schema

# The release has the namespace.
NOT_VALUES = (*DEPLOYMENT_KEYS, "namespace")

# Draft 7 is read by every helm of version 3 and 4; references by pointer mean the same in it.
_DIALECT = "http://json-schema.org/draft-07/schema#"
_LABEL_VALUE = r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$"
_POOL = rf"^[a-z0-9]([a-z0-9-]{{0,{MAX_POOL_CHARACTERS - 2}}}[a-z0-9])?$"


def _part(description: str, **properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "properties": properties,
    }


def _text(description: str, **more: Any) -> dict[str, Any]:
    return {"type": "string", "description": description, **more}


def _pods(description: str, **more: Mapping[str, Any]) -> dict[str, Any]:
    return _part(
        description,
        priorityClassName=_text("Their priority class."),
        resources={"type": "object", "description": "Their resource requests and limits."},
        **more,
    )


def _controller(description: str) -> dict[str, Any]:
    own = "Taints that its pod tolerates beside those of the pools."
    return _pods(
        description,
        nodeSelector={"type": "object", "description": "Labels of the nodes that it runs on."},
        tolerations={"type": "array", "items": {"type": "object"}, "description": own},
        affinity={"type": "object", "description": "Its affinity."},
    )


def _create(description: str, without: str) -> dict[str, Any]:
    create = {"type": "boolean", "description": f"Create them; false: {without}"}
    return _part(description, create=create)


CHART_VALUES: Mapping[str, Mapping[str, Any]] = {
    "image": _part(
        "The agent's image, by digest.",
        repository=_text("Registry and name."),
        digest=_text("Its digest.", pattern=r"^(sha256:[0-9a-f]{64})?$"),
    ),
    "agent": _pods("The agent's pods, one on every node of the pools."),
    "nodeRuntime": _pods("The pods that prepare the container runtime, where a pool asks for it."),
    "claimTemplates": _controller(
        "The template maker's pod, where profiles have claims with shares."
    ),
    "rbac": _create("Roles and bindings.", "these rights are granted in another way."),
    "admissionPolicy": _create(
        "Restricts each agent to its own node and keys, which RBAC cannot express.",
        "an agent's account may change every node.",
    ),
    "tests": _part(
        "What `helm test` runs: one pod for every resource that the pools advertise.",
        image=_text("An image that adds two vectors on a GPU and ends; empty: no tests."),
        resources={
            "type": "array",
            "items": {"type": "string", "minLength": 1},
            "description": "Only these resources; empty: all that the profiles advertise.",
        },
    ),
}
"""What a chart has beside the stack file's values; all of it stands in values.yaml."""


@cache
def stack_values() -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Return the schemas of the stack file's values by key, and the parts they refer to."""
    schema = _without_titles(cluster_schema())
    properties = schema["properties"]
    properties["profiles"]["propertyNames"] = {"pattern": _LABEL_VALUE}
    properties["pools"]["propertyNames"] = {"pattern": _POOL}
    values = {key: value for key, value in properties.items() if key not in NOT_VALUES}
    return values, schema["$defs"]


def values_schema() -> dict[str, Any]:
    """Return values.schema.json."""
    values, parts = stack_values()
    used = {key: part for key, part in parts.items() if not key.startswith("Plugin")}
    return {
        "$schema": _DIALECT,
        "title": "Values of the Divvy chart",
        "type": "object",
        "required": ["profiles", "pools", *CHART_VALUES],
        "additionalProperties": False,
        "properties": {
            **values,
            **CHART_VALUES,
            "global": {"type": "object", "description": "Values that a parent chart shares."},
            "enabled": {"type": "boolean", "description": "The condition of a parent chart."},
        },
        "$defs": used,
    }


def _without_titles(node: Any) -> Any:
    """Leave out the titles that are only the keys once more."""
    if isinstance(node, Mapping):
        return {
            key: _without_titles(value)
            for key, value in node.items()
            if not (key == "title" and isinstance(value, str))
        }
    return [_without_titles(item) for item in node] if isinstance(node, list) else node
