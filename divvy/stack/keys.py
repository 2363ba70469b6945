"""Keys of a stack file that nothing reads: a slip, or a part pasted at the wrong level."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

CLUSTER, LAB = "divvy:cluster", "divvy:lab"
SECTIONS = (CLUSTER, LAB)
# workspace.ProjectStack of the Pulumi SDK (sdk/go/common/workspace/project.go).
TOP_LEVEL = ("config", "environment", "secretsprovider", "encryptedkey", "encryptionsalt")
# Without a namespace, a key of `config` is the program's own, but not these: a cluster's.
MISPLACED = ("profiles", "pools")
_NAMESPACE = "divvy:"
# A file under review may come from anybody, and its errors end up in CI logs and terminals.
_PLAIN = re.compile(r"[\w .:+/-]+")


@dataclass(frozen=True)
class UnreadKey:
    """A key that nothing reads: where it is, why, and what would be right."""

    keys: tuple[str, ...]
    reason: str
    remedy: str

    @property
    def path(self) -> str:
        """Return where it is, for people."""
        return ".".join(key if _PLAIN.fullmatch(key) else repr(key) for key in self.keys)


def unread_keys(document: Mapping[str, Any]) -> Iterator[UnreadKey]:
    """Yield the keys of a stack file that neither Pulumi nor Divvy reads."""
    for key in map(str, document):
        if key not in TOP_LEVEL:
            yield _at_the_top(key)
    config = document.get("config")
    for key in map(str, config if isinstance(config, Mapping) else ()):
        if key in MISPLACED:
            yield _misplaced(("config", key), f"`{CLUSTER}:`")
        elif key.startswith(_NAMESPACE) and key not in SECTIONS:
            yield _of_no_section(key)


def _of_no_section(key: str) -> UnreadKey:
    name = key.removeprefix(_NAMESPACE)
    if name in _cluster_keys():
        return _misplaced(("config", key), f"`{CLUSTER}:`, as `{name}:`")
    return UnreadKey(("config", key), "nothing reads it", _nearest(key, SECTIONS))


@cache
def _cluster_keys() -> frozenset[str]:
    # Only if a key is wrong: the engine starts without pydantic.
    from divvy.model import Cluster  # noqa: PLC0415

    return frozenset(field.alias or name for name, field in Cluster.model_fields.items())


def _at_the_top(key: str) -> UnreadKey:
    if key in SECTIONS:
        return _misplaced((key,), "`config:`")
    if key in _cluster_keys():
        return _misplaced((key,), f"`config: {CLUSTER}:`")
    return UnreadKey((key,), "is not a key of a stack file", _nearest(key, TOP_LEVEL))


def _misplaced(keys: tuple[str, ...], parent: str) -> UnreadKey:
    return UnreadKey(keys, "is at the wrong level", f"write it below {parent}")


def _nearest(key: str, known: Iterable[str]) -> str:
    names = list(known)
    close = get_close_matches(key, names, n=1, cutoff=0.7)
    return f"did you mean {close[0]}?" if close else f"known: {', '.join(names)}"
