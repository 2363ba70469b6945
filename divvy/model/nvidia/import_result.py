"""What comes out of reading another tool's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class ImportResult:
    """Profiles by name, as a stack file writes them, and what could not be expressed in them."""

    profiles: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()

    def joined(self, other: "ImportResult") -> "ImportResult":
        """Return both together; a number is added to a name that both have."""
        profiles = dict(self.profiles)
        left_out = [*self.left_out, *other.left_out]
        for name, value in other.profiles.items():
            if profiles.get(name, value) == value:
                profiles[name] = value
                continue
            number = next(n for n in range(2, len(profiles) + 3) if f"{name}-{n}" not in profiles)
            profiles[f"{name}-{number}"] = value
            left_out.append(
                f"{name}: appears twice with different content; the second is {name}-{number}"
            )
        return ImportResult(profiles, tuple(left_out))
