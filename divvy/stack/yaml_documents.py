"""YAML documents of Kubernetes and its programs: values as their own tools read them."""

from typing import Any

import yaml

from divvy.kubernetes_yaml import NOT_YAML, KubernetesLoader
from divvy.stack.errors import StackError
from divvy.stack.yaml_text import reason_of


def yaml_documents(source: str, text: str) -> list[Any]:
    """Return the documents of a text; raises StackError, which calls it ``source``."""
    try:
        return list(yaml.load_all(text, Loader=KubernetesLoader))
    except NOT_YAML as error:
        raise StackError(f"{source} is not YAML: {reason_of(error, text)}") from None
