"""A policy file: what an administrator allows in stack files."""

from __future__ import annotations

from pathlib import Path

from divvy.model import InvalidValue
from divvy.model.stack_policy import Policy, parse_policy
from divvy.stack.errors import StackError
from divvy.stack.sections import report
from divvy.stack.yaml_text import YamlText, read_text


def read_policy(path: Path) -> Policy:
    """Read a policy file; raises StackError with every error and its line."""
    file = YamlText(str(path), read_text(path))
    file.refuse_duplicates()
    try:
        policy = parse_policy(file.document)
    except InvalidValue as invalid:
        _, text = report(file, ((problem.keys, problem) for problem in invalid.problems))
        raise StackError(text) from None
    if not policy.rules():
        raise StackError(f"{path} has no rule: it would allow everything")
    return policy
