"""YAML as Divvy writes it: text that any reader of YAML takes for text."""

from __future__ import annotations

import re
from typing import Any

import yaml

from divvy.stack.yaml_text import STACK_RESOLVERS


class TextDumper(yaml.SafeDumper):
    """Quotes what some reader would take for more than text.

    1e3 is a number for Go's readers, y is true for some of them. Labels of nodes are such text,
    hashes above all.
    """


for _first, _resolvers in STACK_RESOLVERS.items():
    for _tag, _pattern in _resolvers:
        TextDumper.add_implicit_resolver(_tag, _pattern, [_first])
TextDumper.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN"))


def flow(value: Any) -> str:
    """Return a value as YAML in flow style."""
    text: str = yaml.dump(
        value, Dumper=TextDumper, default_flow_style=True, sort_keys=False, width=10_000
    )
    return text.removesuffix("\n").removesuffix("\n...").rstrip()
