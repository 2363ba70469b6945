"""The JSON Schema of stack files, generated from the types."""

from typing import Any

from divvy.model import stack
from divvy.model.field_docs import field_doc
from divvy.model.gpu_models import gpu_models

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def cluster_schema() -> dict[str, Any]:
    """Return the schema of a ``divvy:cluster`` value, short forms included."""
    schema = stack.Cluster.model_json_schema(by_alias=True)
    parts = schema["$defs"]
    for name, part in {"Cluster": schema, **parts}.items():
        model = getattr(stack, name)
        for field, information in model.model_fields.items():
            value = part["properties"][information.alias]
            value["description"] = field_doc(model, field)
            _mend_default(value)
    parts["Rule"]["properties"]["devices"]["default"] = "all"
    parts["Hardware"]["properties"]["model"]["examples"] = list(gpu_models())
    rule = {"$ref": "#/$defs/Rule"}
    # The file's short forms, which the types see only after they were read.
    parts["Profile"] = {
        "description": parts["Profile"]["description"],
        "oneOf": [rule, {"type": "array", "items": rule, "minItems": 1}],
    }
    long_form = parts["MigRule"]
    layout = long_form["properties"]["layout"]
    long_form["required"] = ["layout"]
    parts["MigRule"] = {
        "description": long_form["description"],
        "oneOf": [
            {
                "type": "object",
                "propertyNames": {"pattern": r"^\d+g\.\d+gb([+-].+)?$"},
                "additionalProperties": layout["additionalProperties"],
                "minProperties": 1,
            },
            long_form,
        ],
    }
    limit = parts["MemoryLimit"]
    parts["MemoryLimit"] = {
        "description": limit["description"],
        "oneOf": [limit["properties"]["limit"], limit],
    }
    return schema


def _mend_default(value: dict[str, Any]) -> None:
    """Write a default as a stack file would; those of whole parts stand at their keys."""
    default = value.get("default")
    if isinstance(default, float):
        value["default"] = f"{default:g}s"
    elif default is None or isinstance(default, dict):
        value.pop("default", None)


def stack_file_schema() -> dict[str, Any]:
    """Return the schema of a whole ``Pulumi.<stack>.yaml``."""
    cluster = cluster_schema()
    parts = cluster.pop("$defs")
    return {
        "$schema": _DIALECT,
        "title": "Divvy stack file",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "required": ["divvy:cluster"],
                "properties": {"divvy:cluster": cluster},
            }
        },
        "$defs": parts,
    }
