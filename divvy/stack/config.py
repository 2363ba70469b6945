"""A stack's configuration as Pulumi hands it to programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from divvy.stack.errors import StackError
from divvy.stack.file import read_path
from divvy.stack.project import Project


@dataclass(frozen=True)
class StackConfig:
    """The configuration of a stack: "namespace:key" → text as Pulumi hands it to programs.

    Structured values are compact JSON. ``sealed`` are encrypted values by key, ``nested``
    structured ones with encrypted values inside.
    """

    values: Mapping[str, str]
    sealed: Mapping[str, str]
    salt: str | None
    nested: Mapping[str, str] = field(default_factory=dict)


def stack_config(project: Project, stack: str) -> StackConfig:
    """Read a stack's configuration; raises StackError."""
    file = read_path(project.stack_path(stack))
    document = file.document
    file.refuse_duplicates()
    file.refuse_unread_keys()
    config = document.get("config") or {}
    if not isinstance(config, dict):
        raise StackError(f"{file.source}: `config` is not a mapping")
    for key in ("secretsprovider", "encryptedkey"):
        if document.get(key) not in (None, "passphrase", "default"):
            raise StackError(
                f"{file.source}: {key}: {document[key]}: only the passphrase secrets provider is "
                "supported"
            )
    values: dict[str, str] = {}
    sealed: dict[str, str] = {}
    nested: dict[str, str] = {}
    for key, value in config.items():
        full = full_key(project, str(key))
        if isinstance(value, dict) and set(value) == {"secure"}:
            sealed[full] = str(value["secure"])
        else:
            try:
                text = _text(value)
            except TypeError:  # the one value of YAML that JSON does not have
                raise StackError(
                    f"{file.source}: config.{key} is a date or has one in it: write it in quotes"
                ) from None
            (nested if _has_secure(value) else values)[full] = text
    return StackConfig(values, sealed, document.get("encryptionsalt"), nested)


def full_key(project: Project, key: str) -> str:
    """Return a key with its namespace, by default the project's name."""
    return key if ":" in key else f"{project.name}:{key}"


def _has_secure(value: Any) -> bool:
    if isinstance(value, dict):
        return set(value) == {"secure"} or any(_has_secure(entry) for entry in value.values())
    return isinstance(value, list) and any(_has_secure(entry) for entry in value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
