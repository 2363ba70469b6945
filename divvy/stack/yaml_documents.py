"""YAML documents of Kubernetes and its programs: values as their own tools read them."""

from __future__ import annotations

import re
from typing import Any, ClassVar

import yaml

from divvy.stack.errors import StackError
from divvy.stack.yaml_text import NOT_YAML, SafeLoader, reason_of

_NUMBERS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
_DATE = "tag:yaml.org,2002:timestamp"


class _Loader(SafeLoader):
    """Takes plain scalars for what sigs.k8s.io/yaml takes them for (goyaml.v2, resolve.go).

    As YAML 1.1 does, but dates are text, and so is 1:30.
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


def yaml_documents(source: str, text: str) -> list[Any]:
    """Return the documents of a text; raises StackError, which calls it ``source``."""
    try:
        return list(yaml.load_all(text, Loader=_Loader))
    except NOT_YAML as error:
        raise StackError(f"{source} is not YAML: {reason_of(error)}") from None
