"""The component's package schema says what a stack file's schema says."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import yaml

from divvy.model import InvalidCluster, parse_cluster
from divvy.model.schema import cluster_schema
from divvy.render.exports.pulumi_schema import pulumi_schema
from lab.cluster.paths import REPOSITORY

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


# Of every type that YAML and Pulumi's protocol have, as people write them where they do not belong.
VALUES = (
    *(True, 1, 1.5, "", "a", "1", "1.5", "50%", "auto", "all", "4Gi", "10s", "share", "wait"),
    *([], [0], ["0"], ["a"], ["1g.5gb"], {}, {"a": "b"}, {"a": 1}, {"1g.5gb": 1}),
)
EVERY_KEY: dict[str, Any] = {
    "profiles": {
        "turns": {"devices": [0], "timeSlicing": {"replicas": 4, "memoryLimit": {"limit": "auto"}}},
        "server": {"mps": {"replicas": 4, "activeThreadPercentage": 25, "memoryLimit": "4Gi"}},
        "slices": {"mig": {"layout": {"1g.5gb": 7}, "strategy": "mixed"}},
        "claimed": {"claims": {"shares": {"memory": {"step": "256Mi"}}, "mig": ["1g.5gb"]}},
    },
    "pools": {
        "gpus": {
            "select": {"a": "b"},
            "hardware": {"model": "A100-SXM4-40GB", "gpus": 2, "count": 2},
            "profile": "turns",
            "runtime": {"configure": True, "name": "containerd"},
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute"}],
        }
    },
    "change": {"policy": "evict", "deadline": "10m"},
    "driver": {"root": "/", "version": "550.163.01", "minVersion": 535},
    "health": {"recoverAfter": "1m", "ignoreXids": [13]},
    "observability": {"alerts": True, "networkPolicy": {"a": "b"}},
    "plugin": {"image": {"registry": "r.example", "base": "b", "platforms": ["linux/amd64"]}},
}


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each mapping or list of a value, with each of its keys or places."""
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places(value[key])


def test_accepts_whatever_a_stack_file_may_say() -> None:
    written = document()
    cluster = written["resources"]["divvy:index:GpuCluster"]["inputProperties"]["cluster"]
    parse_cluster(copy.deepcopy(EVERY_KEY))
    parsed, refused = 0, []
    changed = copy.deepcopy(EVERY_KEY)
    for container, key in list(places(changed)):
        before = container[key]
        for value in VALUES:
            container[key] = value
            try:
                parse_cluster(copy.deepcopy(changed))
            except InvalidCluster:
                continue
            parsed += 1
            if not accepts(cluster, changed, written["types"]):
                refused.append((key, value))
        container[key] = before
    assert not refused
    assert parsed > 50
