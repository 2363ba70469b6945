"""The component's package schema says what a stack file's schema says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

from divvy.lab.paths import REPOSITORY
from divvy.model.schema import cluster_schema
from divvy.render.pulumi_schema import pulumi_schema

PREFIX = "#/types/divvy:index:"


def document() -> dict[str, Any]:
    written: dict[str, Any] = json.loads(pulumi_schema("1.2.3"))
    return written


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for below in value.values():
            yield from nodes(below)
    elif isinstance(value, list):
        for below in value:
            yield from nodes(below)


def test_declares_every_type_that_it_refers_to() -> None:
    written = document()
    referred = {node["$ref"] for node in nodes(written) if isinstance(node.get("$ref"), str)}
    assert referred == {f"{PREFIX}{name.split(':')[-1]}" for name in written["types"]}
    assert written["version"] == "1.2.3"


def test_has_every_key_of_a_stack_file_with_its_description() -> None:
    types = document()["types"]
    schema = cluster_schema()
    for name, part in {"Cluster": schema, **schema["$defs"]}.items():
        for long_form in (part, *part.get("oneOf", ())):
            for key, value in long_form.get("properties", {}).items():
                declared = types[f"divvy:index:{name}"]["properties"][key]
                assert declared["description"].startswith(value["description"]), (name, key)
            if "properties" in long_form:
                required = types[f"divvy:index:{name}"].get("required", [])
                assert required == sorted(long_form.get("required", []))


def accepts(typed: dict[str, Any], value: Any, types: dict[str, Any]) -> bool:
    """Tell whether a value is of a type of the package schema."""
    if "$ref" in typed:
        declared = types[typed["$ref"].removeprefix("#/types/")]
        if "enum" in declared:
            return value in [word["value"] for word in declared["enum"]]
        return (
            isinstance(value, dict)
            and {*declared.get("required", ())} <= {*value} <= {*declared["properties"]}
            and all(accepts(declared["properties"][key], value[key], types) for key in value)
        )
    if "oneOf" in typed:
        return any(accepts(member, value, types) for member in typed["oneOf"])
    if typed["type"] == "array":
        return isinstance(value, list) and all(
            accepts(typed["items"], item, types) for item in value
        )
    if typed["type"] == "object":
        return isinstance(value, dict) and all(
            accepts(typed["additionalProperties"], item, types) for item in value.values()
        )
    kinds = {"string": str, "integer": int, "number": (int, float), "boolean": bool}
    return isinstance(value, kinds[typed["type"]])


def test_accepts_the_clusters_of_the_stack_files() -> None:
    written = document()
    cluster = written["resources"]["divvy:index:GpuCluster"]["inputProperties"]["cluster"]
    files = sorted((REPOSITORY / "stacks").glob("Pulumi.*.yaml"))
    for path in files:
        value = yaml.safe_load(path.read_text())["config"]["divvy:cluster"]
        assert accepts(cluster, value, written["types"]), path.name
        value["pools"][next(iter(value["pools"]))]["profil"] = "whole"
        assert not accepts(cluster, value, written["types"]), path.name
    assert len(files) > 3
