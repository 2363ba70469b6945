"""Files of an agent that is newer than this one."""

from __future__ import annotations

from typing import Any

# Objects that are no values of a type but map names of the node to something.
_MAPS = {"labels", "assignment", "last_seen", "mig", "counters", "consumes"}
_MAPS_OF_OBJECTS = {"applied"}


def widened(value: Any, key: str = "") -> Any:
    """Return a file's content with one more field in every object."""
    if isinstance(value, list):
        return [widened(element) for element in value]
    if not isinstance(value, dict) or key in _MAPS:
        return value
    wide = {name: widened(field, name) for name, field in value.items()}
    return wide if key in _MAPS_OF_OBJECTS else {**wide, "newer": {"than": "this"}}
