"""The objects of a cluster as plain YAML, for `kubectl apply -f` and Argo CD."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import yaml

from divvy.render.objects import objects


class _Dumper(yaml.SafeDumper):
    """YAML as people write it: long text as it is, lists below their keys."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def manifests(value: Mapping[str, Any], image: str) -> str:
    """Return all objects, in the order in which they can be created; raises InvalidCluster."""
    documents = [
        yaml.dump(
            # Through JSON, so that tuples and the like are what they will be in the cluster.
            json.loads(json.dumps(found)),
            Dumper=_Dumper,
            sort_keys=False,
            allow_unicode=True,
            width=100,
        )
        for found in objects(value, image)
    ]
    return "---\n".join(documents)
