"""The JSON Schema of stack files, generated from the types."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from divvy.model.field_docs import field_doc
from divvy.model.gpu_models import gpu_models
from divvy.model.stack import Cluster
from divvy.model.validation import model_in

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def cluster_schema() -> dict[str, Any]:
    """Return the schema of a ``divvy:cluster`` value, short forms included."""
    schema = described_schema(Cluster)
    parts = schema["$defs"]
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


def described_schema(kind: type[BaseModel]) -> dict[str, Any]:
    """Return the schema of a type, each key described by the text below its field."""
    schema = kind.model_json_schema(by_alias=True)
    parts = {kind.__name__: schema, **schema.get("$defs", {})}
    for model in _parts(kind):
        for field, information in model.model_fields.items():
            value = parts[model.__name__]["properties"][information.alias]
            value["description"] = field_doc(model, field)
            _show_default(value)
    return schema


def stack_file_schema(
    sections: Mapping[str, dict[str, Any]], *, top_level: Iterable[str], misplaced: Iterable[str]
) -> dict[str, Any]:
    """Return the schema of a ``Pulumi.<stack>.yaml`` with at least one of these sections.

    ``top_level`` are the keys that a file has beside ``config``, ``misplaced`` those that
    belong into a section and are refused beside it, as is any other key of a section's namespace.
    """
    parts: dict[str, Any] = {}
    properties = {}
    for key, section in sections.items():
        parts |= section.get("$defs", {})
        properties[key] = {name: value for name, value in section.items() if name != "$defs"}
    names = "|".join(key.removeprefix("divvy:") for key in sections)
    return {
        "$schema": _DIALECT,
        "title": "Divvy stack file",
        "type": "object",
        "required": ["config"],
        "additionalProperties": False,
        "properties": dict.fromkeys(top_level, True)
        | {
            "config": {
                "type": "object",
                "anyOf": [{"required": [key]} for key in sections],
                "properties": properties | dict.fromkeys(misplaced, False),
                "patternProperties": {rf"^divvy:(?!({names})$)": False},
            }
        },
        "$defs": parts,
    }


def _parts(kind: type[BaseModel]) -> Iterator[type[BaseModel]]:
    """Yield a type and the types below it."""
    yield kind
    for field in kind.model_fields.values():
        below = model_in(field.annotation)
        if below is not None:
            yield from _parts(below)


def _show_default(value: dict[str, Any]) -> None:
    """Write a default as a stack file would; those of whole parts stand at their keys."""
    default = value.get("default")
    if isinstance(default, float) and value.get("type") == "string":  # a duration
        value["default"] = f"{default:g}s"
    elif default is None or isinstance(default, dict):
        value.pop("default", None)
