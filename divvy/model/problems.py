"""``Problem``: an error in a value from outside, said so that its author can fix it."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches

Keys = tuple[str | int, ...]
_CLOSE = 0.5
# So much of a value is shown in an error.
MAX_VALUE_LENGTH = 80
# A file under review may come from anybody, and its errors end up in CI logs and terminals.
_PLAIN = re.compile(r"[\w .+/-]+")


@dataclass(frozen=True, order=True)
class Problem:
    """One error: where it is, what is wrong, what would be right.

    ``path`` is for people; ``keys`` are the keys and indices that lead there.
    """

    path: str
    reason: str
    remedy: str = ""
    keys: Keys = field(default=(), compare=False)

    def __str__(self) -> str:
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{self.path}: {self.reason}{remedy}"


def problem(keys: Keys, reason: str, remedy: str = "", *, root: str = "divvy:cluster") -> Problem:
    """Return a problem at the place that the keys lead to, in a value called ``root``."""
    return Problem(path_of(keys, root), reason, remedy, keys)


def path_of(keys: Keys, root: str = "divvy:cluster") -> str:
    """Write keys and indices as a path: ``profiles.split[0].mig.3g.20gb``; ``root`` for none."""
    path = ""
    for key in keys:
        path += (
            f"[{key}]" if isinstance(key, int) else f".{_key_text(key)}" if path else _key_text(key)
        )
    return path or root


def _key_text(key: object) -> str:
    """Write a key so that it is one harmless word, whatever the file says."""
    text = str(key)
    return text if _PLAIN.fullmatch(text) else repr(text)


def printable(text: object) -> str:
    """Return a text from outside as one that no terminal or page takes for more than text."""
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(char if char.isprintable() else "\ufffd" for char in plain)


def value_text(value: object) -> str:
    """Return a value as errors show it: short, and in the file's words."""
    if value is None:
        return "empty"
    if isinstance(value, Mapping):
        return "a mapping" if value else "{}"
    if isinstance(value, list | tuple):
        return "a list" if value else "[]"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= MAX_VALUE_LENGTH else f"{text[: MAX_VALUE_LENGTH - 1]}…"


def nearest(wanted: str, known: Iterable[str]) -> str:
    """Return a remedy that names the nearest known name, or all of them in their order."""
    names = list(known)
    close = get_close_matches(wanted, names, n=1, cutoff=_CLOSE)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(names)}" if names else "none is defined"


class InvalidValue(Exception):
    """A value from outside with errors; all of them are reported at once."""

    def __init__(self, problems: Iterable[Problem]):
        self.problems = tuple(dict.fromkeys(problems))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class InvalidCluster(InvalidValue):
    """A cluster value with errors."""


class NewerSchema(Exception):
    """A canonical document of a schema that this version does not know."""

    def __init__(self, version: object, known: int):
        super().__init__(
            f"the configuration has schemaVersion {version!r}, this version of divvy knows {known};"
            " upgrade it"
        )
        self.version = version
        self.known = known
