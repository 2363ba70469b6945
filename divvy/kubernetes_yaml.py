"""YAML as Kubernetes and its programs read it: the loader, and what else a text may be."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml

# Deeper than any file of ours or of Kubernetes'.
_MAX_DEPTH = 200
_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DATE = "tag:yaml.org,2002:timestamp"
_TEMPLATE = re.compile(r"\{\{.*\}\}|\{%.*%\}")

# The parser trips over dates, numbers and tags that are none, each time in another way.
NOT_YAML = (
    yaml.YAMLError,
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)


class SafeLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses what is nested too deeply: libyaml recurses without a limit, and the process dies."""

    _depth = 0

    def descend_resolver(self, parent: yaml.Node | None, index: object) -> None:
        """Go into a node, as the composer says."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise RecursionError
        super().descend_resolver(parent, index)

    def ascend_resolver(self) -> None:
        """Leave a node."""
        self._depth -= 1
        super().ascend_resolver()


class KubernetesLoader(SafeLoader):
    """Takes plain scalars for what sigs.k8s.io/yaml takes them for (goyaml.v2, resolve.go).

    As YAML 1.1 does, but dates are text, and so is 1:30; y and n are true and false. It makes
    JSON of a document, where all keys are text: off is "false".
    """

    yaml_implicit_resolvers: ClassVar[dict[str, list[tuple[str, re.Pattern[str]]]]] = {
        first: [
            # A number without colons.
            (tag, re.compile(f"(?!.*:){pattern.pattern}", re.X) if tag in _NUMBERS else pattern)
            for tag, pattern in resolvers
            if tag != _DATE
        ]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[str, Any]:
        """Return a mapping with keys as JSON has them."""
        return {_key(key): value for key, value in super().construct_mapping(node, deep).items()}

    def construct_yaml_bool(self, node: yaml.ScalarNode) -> bool:
        """Return a truth value, y and n among them."""
        return str(self.construct_scalar(node)).lower() in ("y", "yes", "true", "on")


def _key(key: object) -> str:
    if isinstance(key, bool):
        return str(key).lower()
    return "null" if key is None else str(key)


KubernetesLoader.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile("^[yYnN]$"), list("yYnN")
)
KubernetesLoader.add_constructor("tag:yaml.org,2002:bool", KubernetesLoader.construct_yaml_bool)


def is_template(text: str) -> bool:
    """Return whether a text is Helm's, Go's or Jinja's template of one."""
    return bool(_TEMPLATE.search(text))
