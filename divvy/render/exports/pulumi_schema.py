"""The component's schema for Pulumi: from it, each language gets its typed arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from divvy.model.schema import cluster_schema

PACKAGE = "divvy"
COMPONENT = f"{PACKAGE}:index:GpuCluster"
_ROOT = "Cluster"
_SCALARS = ("string", "integer", "number", "boolean")

Schema = Mapping[str, Any]


def pulumi_schema(version: str) -> str:
    """Return the package schema, as JSON.

    The form is that of pulumi.com/docs/iac/guides/building-extending/packages/schema: every object
    and every list of allowed words is a type with a name.
    """
    types = _types(cluster_schema())
    document = {
        "name": PACKAGE,
        "version": version,
        "description": "How every GPU of a Kubernetes cluster is partitioned and shared.",
        "keywords": ["kubernetes", "gpu", "nvidia", "kind/component"],
        "language": {name: {"respectSchemaVersion": True} for name in ("go", "nodejs", "python")},
        "types": types,
        "resources": {
            COMPONENT: {
                "isComponent": True,
                "description": "Everything Divvy has in one cluster.",
                "inputProperties": {
                    "cluster": {
                        "$ref": _reference(_ROOT),
                        "description": "The cluster, as `divvy:cluster` of a stack file.",
                    }
                },
                "requiredInputs": ["cluster"],
                "properties": {
                    "image": {"type": "string", "description": "The agent's image, by digest."},
                    "advertised": {
                        "type": "object",
                        "additionalProperties": {"type": "integer"},
                        "description": "What all nodes together will advertise, by resource.",
                    },
                },
                "required": ["image", "advertised"],
            }
        },
    }
    return json.dumps(document, indent=2, sort_keys=True) + "\n"


def _reference(name: str) -> str:
    return f"#/types/{PACKAGE}:index:{name}"


def _types(schema: Schema) -> dict[str, Any]:
    """Return the named types of a JSON Schema: its own, those of `$defs`, and allowed words."""
    types: dict[str, Any] = {}
    unions = {name: part for name, part in schema["$defs"].items() if "oneOf" in part}

    def add_object(name: str, part: Schema) -> None:
        properties = {
            key: _described(typed(value, name + key[0].upper() + key[1:]), value)
            for key, value in part["properties"].items()
        }
        declared = {"type": "object", "description": part["description"], "properties": properties}
        if required := part.get("required"):
            declared["required"] = sorted(required)
        types[f"{PACKAGE}:index:{name}"] = declared

    def typed(part: Schema, name: str) -> dict[str, Any]:
        """Return a value's type; ``name`` is for a type that it needs to declare."""
        if reference := part.get("$ref"):
            referred = reference.rpartition("/")[2]
            return (
                typed(unions[referred], referred)
                if referred in unions
                else {"$ref": _reference(referred)}
            )
        if members := _members(part):
            typed_members = [typed(member, name) for member in members]
            return typed_members[0] if len(members) == 1 else {"oneOf": typed_members}
        if "enum" in part:
            return enumerated(name, part)
        if "properties" in part:
            add_object(name, part)
            return {"$ref": _reference(name)}
        if part["type"] == "array":
            return {"type": "array", "items": typed(part["items"], name)}
        if part["type"] == "object":
            values = typed(part["additionalProperties"], name)
            return {"type": "object", "additionalProperties": values}
        assert part["type"] in _SCALARS, part
        return {"type": part["type"]}

    def enumerated(name: str, part: Schema) -> dict[str, Any]:
        values = [{"value": value} for value in part["enum"]]
        types[f"{PACKAGE}:index:{name}"] = {"type": part["type"], "enum": values}
        return {"$ref": _reference(name)}

    add_object(_ROOT, schema)
    for name, part in schema["$defs"].items():
        if name not in unions:
            add_object(name, part)
    return types


def _members(part: Schema) -> list[Schema]:
    """Return the alternatives that a value has, none if it has one type.

    Without null: in Pulumi, every property that is not required may be absent.
    """
    if isinstance(part.get("type"), list):
        return [{**part, "type": kind} for kind in part["type"]]
    alternatives = (*part.get("anyOf", ()), *part.get("oneOf", ()))
    return [member for member in alternatives if member.get("type") != "null"]


def _described(typed: dict[str, Any], part: Schema) -> dict[str, Any]:
    words = part.get("description", "")
    default = part.get("default")
    if default not in (None, [], {}):
        words = f"{words} Default: {json.dumps(default)}."
    return {**typed, "description": words} if words else typed
