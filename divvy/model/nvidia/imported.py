"""What comes out of reading another tool's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class BadConfig(Exception):
    """A configuration that the tool it is meant for would refuse; the text says why."""


@dataclass(frozen=True)
class Imported:
    """Profiles by name, as a stack file writes them, and what could not be said in them."""

    profiles: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def joined(self, other: "Imported") -> "Imported":
        """Return both together; a name that both have is told apart by a number."""
        profiles = dict(self.profiles)
        left_out = [*self.left_out, *other.left_out]
        for name, value in other.profiles.items():
            if profiles.get(name, value) == value:
                profiles[name] = value
                continue
            number = next(n for n in range(2, len(profiles) + 3) if f"{name}-{n}" not in profiles)
            profiles[f"{name}-{number}"] = value
            left_out.append(
                f"{name}: is there twice with different content; the second is {name}-{number}"
            )
        return Imported(profiles, tuple(left_out))


def mapping(value: object, where: str) -> Mapping[str, Any]:
    """Return a value that has to be a mapping."""
    if not isinstance(value, Mapping):
        raise BadConfig(f"{where} has to be a mapping")
    return value


def whole_number(value: object, where: str, least: int) -> int:
    """Return a value that has to be a whole number of at least ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise BadConfig(f"{where} is {value!r}; a whole number from {least} is expected")
    return value


def true_or_false(value: object, where: str) -> bool:
    """Return a value that has to be a boolean."""
    if not isinstance(value, bool):
        raise BadConfig(f"{where} is {value!r}; true or false is expected")
    return value
