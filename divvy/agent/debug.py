"""The agent's state as JSON, for people on the node: a Unix socket that only root opens."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel

from divvy.agent.web import Answer

SOCKET = "debug.sock"


def state_page(state: Mapping[str, Any]) -> Answer:
    """Render a state as JSON."""
    body = json.dumps(plain(state), indent=1, sort_keys=True) + "\n"
    return "200 OK", "application/json", body.encode()


def plain(value: Any) -> Any:
    """Return a value as what JSON has: dataclasses by their fields, keys as texts."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Mapping):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(item) for item in value), key=str)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    return str(value) if isinstance(value, PurePath) else value


def _key(key: Any) -> str:
    parts = key if isinstance(key, tuple | frozenset) else (key,)
    return " ".join(sorted(map(str, parts)) if isinstance(key, frozenset) else map(str, parts))
