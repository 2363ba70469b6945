"""The chart's files without helm: the same bytes each time, every value explained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from divvy.model import Toleration
from divvy.model.stack import Cluster
from divvy.render.chart.actions import EVERYTHING
from divvy.render.chart.conditionals import CannotTemplate, conditional
from divvy.render.chart.templated_objects import templated_objects
from divvy.render.chart.values_schema import CHART_VALUES, NOT_VALUES
from divvy.render.chart.yaml_text import Conditional, Expression, Lines, flow, yaml_text
from tests.render.chart.charts import IMAGE, STACKS, example, files_of, stack_value
from tests.render.documents import objects_of


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_writes_the_same_bytes_for_the_same_input(path: Path) -> None:
    assert files_of(stack_value(path)) == files_of(stack_value(path))


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_writes_the_same_templates_for_every_stack(path: Path) -> None:
    def templates(value: dict[str, Any]) -> dict[str, str]:
        files = files_of(value)
        return {name: text for name, text in files.items() if name.endswith((".yaml", ".tpl"))}

    first, other = templates(stack_value(path)), templates(example("lab"))
    assert {name for name in first if first[name] != other[name]} <= {"values.yaml"}
    assert first.keys() == other.keys()


def test_leaves_no_text_of_the_pattern_cluster_in_a_template() -> None:
    for name, text in files_of(example("lab")).items():
        if name.startswith("templates/"):
            for stand_in in ("release-namespace", "pool-of-the", "image.invalid", "of-the-values"):
                assert stand_in not in text, name
            assert "@." not in text, name


def test_has_every_kind_of_object_in_a_template() -> None:
    files = files_of(example("lab"))
    for obj in objects_of(EVERYTHING, IMAGE):
        kind = f"kind: {obj['kind']}\n"
        assert kind == "kind: Namespace\n" or any(kind in text for text in files.values())


@pytest.mark.parametrize("path", STACKS, ids=lambda path: path.stem)
def test_writes_the_values_of_the_stack_file_and_the_chart(path: Path) -> None:
    value = stack_value(path)
    values = yaml.safe_load(files_of(value)["values.yaml"])
    own = {key: values.pop(key) for key in CHART_VALUES}
    assert values == {key: item for key, item in value.items() if key not in NOT_VALUES}
    assert f"{own['image']['repository']}@{own['image']['digest']}" == IMAGE
    (agent,) = [
        obj
        for obj in objects_of(value, IMAGE)
        if obj["metadata"]["name"] == "divvy-agent" and obj["kind"] == "DaemonSet"
    ]
    (container,) = agent["spec"]["template"]["spec"]["containers"]
    assert own["agent"]["resources"] == container["resources"]


def keys_of(schema: Any, parts: dict[str, Any]) -> set[str]:
    """Return every key that a schema names, at any depth."""
    keys: set[str] = set()
    for key, value in schema.get("properties", {}).items():
        keys |= {key} | keys_of(value, parts)
    for inner in ("items", "additionalProperties"):
        if isinstance(schema.get(inner), dict):
            keys |= keys_of(schema[inner], parts)
    for choice in (*schema.get("oneOf", ()), *schema.get("anyOf", ())):
        keys |= keys_of(choice, parts)
    if "$ref" in schema:
        keys |= keys_of(parts[schema["$ref"].rpartition("/")[2]], parts)
    return keys


def test_explains_every_value_in_the_values_and_the_readme() -> None:
    files = files_of(example("lab"))
    schema = json.loads(files["values.schema.json"])
    keys = keys_of(schema, schema["$defs"]) - {"global", "enabled"}
    assert {"memoryLimit", "tolerationSeconds", "ignoreXids", "digest"} <= keys
    for key in keys:
        assert f"{key}:" in files["values.yaml"], key
        assert f"{key}`" in files["README.md"], key


def test_covers_every_stack_key_of_a_chart_in_its_schema() -> None:
    schema = json.loads(files_of(example("lab"))["values.schema.json"])
    fields = {field.alias or name for name, field in Cluster.model_fields.items()}
    assert fields - set(NOT_VALUES) <= schema["properties"].keys()
    assert not set(NOT_VALUES) & schema["properties"].keys()
    tolerations = {field.alias for field in Toleration.model_fields.values()}
    assert tolerations == schema["$defs"]["Toleration"]["properties"].keys()


def test_notices_a_new_dependence_of_an_object_on_the_stack_file() -> None:
    """A new dependence of an object on the stack file ends here, not in a wrong chart."""
    assert templated_objects().objects
    with pytest.raises(CannotTemplate, match="becomes"):
        conditional({"replicas": 1}, {"replicas": 2}, "if x")
    with pytest.raises(CannotTemplate, match="appears"):
        conditional({"a": 1}, {"a": 1, "b": 2}, "if x")


def test_guards_by_a_switch_what_is_missing_without_it() -> None:
    full = {"a": 1, "b": 2, "list": [{"name": "x"}, {"name": "y", "z": 1}]}
    without = {"a": 1, "list": [{"name": "y"}]}
    assert conditional(full, without, "if it") == {
        "a": 1,
        "b": Conditional("if it", 2),
        "list": [Conditional("if it", {"name": "x"}), {"name": "y", "z": Conditional("if it", 1)}],
    }


_SCALARS = st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"))
_TREES = st.recursive(
    _SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("ab1:# -", max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(st.text("abc/.1e3-: ", min_size=1, max_size=8), _TREES, min_size=1, max_size=3)
)
def test_reads_back_whatever_it_writes(value: dict[str, Any]) -> None:
    """Text that YAML could take for a number, a date or a switch stays text."""
    assert yaml.safe_load(yaml_text(value).replace('{{ "{{" }}', "{{")) == value
    assert yaml.safe_load(flow(value).replace('{{ "{{" }}', "{{")) == value


def test_escapes_text_that_looks_like_an_action() -> None:
    assert yaml_text({"a": "{{ $labels.node }}"}) == 'a: "{{ "{{" }} $labels.node }}"\n'


def test_writes_actions_where_a_person_would() -> None:
    node = {
        "name": Expression("{{ .Release.Name }}"),
        "spec": Conditional(
            "if .Values.x", {"list": [Conditional("if .Values.y", {"a": 1, "b": [2]})]}
        ),
        "rest": Lines("{{- toYaml . | nindent %d }}"),
    }
    assert (
        yaml_text(node)
        == """\
name: {{ .Release.Name }}
{{- if .Values.x }}
spec:
  list:
    {{- if .Values.y }}
    - a: 1
      b: [2]
    {{- end }}
{{- end }}
rest:
  {{- toYaml . | nindent 2 }}
"""
    )
