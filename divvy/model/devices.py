"""``DeviceSelector``: the GPUs of a node that a rule takes."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from divvy.model.problems import value_text

_UUID = re.compile(r"GPU-[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_EXPECTED = "all, a list of indices and GPU UUIDs, or a glob over models such as A100* is expected"

SCHEMA: Mapping[str, Any] = {
    "description": "All GPUs of the node, or indices and UUIDs, or a glob over models.",
    "default": "all",
    "oneOf": [
        {"type": "string", "minLength": 1},
        {
            "type": "array",
            "minItems": 1,
            "items": {"oneOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
        },
    ],
}


@dataclass(frozen=True)
class DeviceSelector:
    """A choice among the GPUs of a node: all, or by index, UUID or model glob."""

    indices: tuple[int, ...] = ()
    uuids: tuple[str, ...] = ()
    model: str | None = None

    @property
    def everything(self) -> bool:
        """Return whether every GPU is taken."""
        return not self.indices and not self.uuids and self.model is None

    def takes(self, index: int | None, uuid: str, names: tuple[str, ...]) -> bool:
        """Return whether a GPU of that index, UUID and model (any of its names) is taken."""
        if self.everything or index in self.indices or uuid in self.uuids:
            return True
        glob = self.model
        return glob is not None and any(
            fnmatchcase(name.casefold(), glob.casefold()) for name in names
        )

    def __str__(self) -> str:
        if self.everything:
            return "all GPUs"
        if self.model is not None:
            return f"GPUs like {self.model}"
        indices = [f"GPU {index}" for index in self.indices]
        return ", ".join([*indices, *self.uuids])


def parse_devices(value: object) -> DeviceSelector:
    """Read the ``devices`` of a rule."""
    if isinstance(value, DeviceSelector):
        return value
    if value == "all":
        return DeviceSelector()
    if isinstance(value, str) and value:
        return (
            DeviceSelector(uuids=(value,))
            if _UUID.fullmatch(value)
            else DeviceSelector(model=value)
        )
    if not isinstance(value, list) or not value:
        raise ValueError(f"is {value_text(value)}; {_EXPECTED}")
    indices: list[int] = []
    uuids: list[str] = []
    for item in value:
        if isinstance(item, bool):
            raise ValueError(f"has {value_text(item)}; an index from 0 or a GPU UUID is expected")  # noqa: TRY004
        if isinstance(item, int) and item >= 0:
            indices.append(item)
        elif isinstance(item, str) and item.isascii() and item.isdigit():
            indices.append(int(item))
        elif isinstance(item, str) and _UUID.fullmatch(item):
            uuids.append(item)
        else:
            raise ValueError(f"has {value_text(item)}; an index from 0 or a GPU UUID is expected")
    return DeviceSelector(tuple(dict.fromkeys(indices)), tuple(dict.fromkeys(uuids)))
