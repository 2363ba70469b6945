"""What is wrong with a stack file, said so that its author can mend it."""

from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, order=True)
class Problem:
    """One error: where it is, what is wrong, what would be right.

    ``path`` is for people; ``keys`` are the keys and indices that lead there.
    """

    path: str
    reason: str
    remedy: str = ""
    keys: tuple[str | int, ...] = field(default=(), compare=False)

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.path}: {self.reason}{remedy}"


def path_of(keys: tuple[str | int, ...]) -> str:
    """Write keys and indices as a path: ``profiles.split[0].mig.3g.20gb``."""
    path = ""
    for key in keys:
        path += f"[{key}]" if isinstance(key, int) else f".{key}" if path else str(key)
    return path or "divvy:cluster"


class InvalidCluster(Exception):
    """A cluster value with errors; all of them are told at once."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class NewerSchema(Exception):
    """A canonical document of a schema that this version does not know."""

    def __init__(self, version: object, known: int):
        super().__init__(
            f"the configuration has schemaVersion {version!r}, this version of divvy knows {known};"
            " upgrade it"
        )
        self.version = version
        self.known = known
