"""Documents of Kubernetes' programs: plain scalars as kubectl takes them, and text that is none."""

from __future__ import annotations

import pytest

from divvy.stack.errors import StackError
from divvy.stack.yaml_documents import yaml_documents


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2026-11-22", "2026-11-22"),
        ("2026-13-45", "2026-13-45"),
        ("1:30", "1:30"),
        ("1:30.5", "1:30.5"),
        ("yes", True),
        ("010", 8),
        ("1.5", 1.5),
        ("-3", -3),
        ("~", None),
        ("[y, N, off, yEs]", [True, False, False, "yEs"]),
        ("{off: 1, y: 2, 3: 4, 1.5: 5}", {"false": 1, "true": 2, "3": 4, "1.5": 5}),
        ("a: &a {off: 1}\nb: {<<: *a, c: 2}", {"a": {"false": 1}, "b": {"false": 1, "c": 2}}),
        ("a: &a [1]\nb: *a", {"a": [1], "b": [1]}),
    ],
)
def test_reads_scalars_as_kubectl_does(text: str, value: object) -> None:
    assert yaml_documents("x", text) == [value]


@pytest.mark.parametrize(
    "text",
    [
        "replicas: {{ .Values.replicas }}",
        "{{- if .Values.on }}\nkind: Pod\n{{- end }}",
        "{% for n in nodes %}\nkind: Pod\n{% endfor %}",
    ],
)
def test_recognises_a_template(text: str) -> None:
    with pytest.raises(StackError, match=r"it is a template .*; render it first"):
        yaml_documents("x.yaml", text)


@pytest.mark.parametrize(
    "text", ["a: [", "!!int x", "9" * 5000, "!!timestamp x", "[" * 100_000, "{a: " * 500, "\udc80"]
)
def test_reports_invalid_yaml_in_one_error(text: str) -> None:
    with pytest.raises(StackError) as raised:
        yaml_documents("x.yaml", text)
    message = str(raised.value)
    assert message.startswith("x.yaml is not YAML: ")
    assert "\n" not in message
    assert len(message) < 300
