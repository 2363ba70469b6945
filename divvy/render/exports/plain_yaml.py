"""Values as YAML that people read: no aliases, long text as it is, lists below their keys."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import yaml

from divvy.stack.yaml_flow import TextDumper


class _Dumper(TextDumper):
    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def plain_yaml(value: object, width: int = 100) -> str:
    """Return a value as one YAML document, its keys in their order."""
    # Through JSON, so that tuples and the like are what they will be for who reads it.
    plain = json.loads(json.dumps(value))
    return yaml.dump(plain, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=width)


def yaml_documents(values: Iterable[object]) -> str:
    """Return values as YAML documents, one after the other."""
    return "---\n".join(map(plain_yaml, values))
