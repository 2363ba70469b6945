"""Version numbers, compared number by number."""

import re


def is_older(version: str, minimum: str) -> bool:
    """Return whether a version such as ``550.163.01`` comes before a minimum."""
    return _numbers(version) < _numbers(minimum)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
