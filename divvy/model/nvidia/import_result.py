"""The result of reading another tool's configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from divvy.model.cluster_value import parse_cluster
from divvy.model.problems import InvalidValue


@dataclass(frozen=True)
class ImportResult:
    """Profiles by name, as a stack file writes them, and what could not be expressed in them.

    ``refused``: NVIDIA's tools would not take one of the configurations.
    """

    profiles: Mapping[str, Any] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    refused: bool = False

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
        return ImportResult(profiles, tuple(left_out), self.refused or other.refused)


def checked(imported: ImportResult) -> ImportResult:
    """Return what of an import a stack file may have; the rest is named."""
    profiles, refusals = {}, []
    for name, profile in imported.profiles.items():
        cluster = {"profiles": {name: profile}, "pools": {"pool": {"profile": name}}}
        try:
            parse_cluster(cluster)
        except InvalidValue as invalid:
            refusals += [str(refusal).removeprefix("profiles.") for refusal in invalid.problems]
        else:
            profiles[name] = profile
    left_out = (*imported.left_out, *refusals)
    return ImportResult(profiles, left_out, imported.refused)
