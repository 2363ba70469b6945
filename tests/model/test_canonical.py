"""The canonical JSON that the ConfigMap carries."""

import json

import pytest

from divvy.model import InvalidCluster, NewerSchema, canonical_json, parse_canonical, parse_cluster

VALUE = {
    "profiles": {"whole": {}, "a": {"timeSlicing": {"replicas": 4}}},
    "pools": {"p": {"profile": "a", "overrides": {}}},
}


def test_writes_compact_sorted_versioned_verbatim_json():
    text = canonical_json(VALUE)
    assert text == (
        '{"cluster":{"pools":{"p":{"overrides":{},"profile":"a"}},'
        '"profiles":{"a":{"timeSlicing":{"replicas":4}},"whole":{}}},"schemaVersion":1}'
    )
    assert json.loads(text)["cluster"] == VALUE
    assert canonical_json(dict(reversed(VALUE.items()))) == text


def test_writes_a_number_one_way():
    values = [{"a": [number], "b": {"c": number}, "d": 1.5} for number in (2, 2.0)]
    text = '{"cluster":{"a":[2],"b":{"c":2},"d":1.5},"schemaVersion":1}'
    assert [canonical_json(value) for value in values] == [text, text]


def test_omits_what_only_a_deployment_reads():
    here = {**VALUE, "kubeconfig": "~/.kube/config", "context": "prod", "plugin": {"image": None}}
    assert canonical_json(here) == canonical_json(VALUE)


def test_omits_what_is_null_as_a_chart_does():
    assert canonical_json({**VALUE, "change": None}) == canonical_json(VALUE)


def test_parses_canonical_text_back_to_the_cluster():
    assert parse_canonical(canonical_json(VALUE)) == parse_cluster(VALUE)


def test_refuses_a_newer_schema_by_its_number():
    with pytest.raises(NewerSchema, match="schemaVersion 2, this version of divvy knows 1"):
        parse_canonical('{"cluster":{"new":1},"schemaVersion":2}')


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"schemaVersion":0}', '{"schemaVersion":"1"}', '{"schemaVersion":1}']
)
def test_refuses_damaged_text(text):
    with pytest.raises(InvalidCluster):
        parse_canonical(text)
