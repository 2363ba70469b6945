"""A stack's configuration as Pulumi hands it to programs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from divvy.stack.errors import StackError
from divvy.stack.file import read_path
from divvy.stack.project import Project

# A few aliases of aliases make more of a short text.
_MAX_VALUES = 1_000_000


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
    salt = document.get("encryptionsalt")
    if not isinstance(salt, str | None):
        raise StackError(f"{file.source}: encryptionsalt is not a string: v1:… is expected")
    values: dict[str, str] = {}
    sealed: dict[str, str] = {}
    nested: dict[str, str] = {}
    for key, value in config.items():
        full = full_key(project, str(key))
        if _is_larger(value, _MAX_VALUES):
            raise StackError(
                f"{file.source}: config.{key} has more than {_MAX_VALUES:,} values: are YAML "
                "aliases repeated?"
            )
        if isinstance(value, dict) and set(value) == {"secure"}:
            sealed[full] = str(value["secure"])
        else:
            try:
                text = _text(value)
            except TypeError as odd:  # YAML has types that JSON lacks
                what = "a date" if " date" in str(odd) else "a set or binary data (!!)"
                raise StackError(
                    f"{file.source}: config.{key} is {what} or has one in it: write it in quotes"
                ) from None
            (nested if _has_secure(value) else values)[full] = text
    return StackConfig(values, sealed, salt, nested)


def full_key(project: Project, key: str) -> str:
    """Return a key with its namespace, by default the project's name."""
    return key if ":" in key else f"{project.name}:{key}"


def _is_larger(value: Any, size: int) -> bool:
    """Tell whether a value holds more values than that; one that refers to itself is endless."""
    open_ = [value]
    for _ in range(size):
        if not open_:
            return False
        item = open_.pop()
        if isinstance(item, dict):
            open_ += item.values()
        elif isinstance(item, list):
            open_ += item
    return bool(open_)


def _has_secure(value: Any) -> bool:
    if isinstance(value, dict):
        return set(value) == {"secure"} or any(_has_secure(entry) for entry in value.values())
    return isinstance(value, list) and any(_has_secure(entry) for entry in value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(_plain(value), separators=(",", ":"))


def _plain(value: Any) -> Any:
    """Return a value in which 2.0 is 2, as the official CLI writes it."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    return [_plain(entry) for entry in value] if isinstance(value, list) else value
