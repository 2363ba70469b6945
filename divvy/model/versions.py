"""Versions of drivers, Kubernetes and runtimes, compared number by number."""

import re

_NUMBERS = re.compile(r"v?(\d+(?:\.\d+)*)")


def is_older(version: str, minimum: str) -> bool:
    """Return whether a version such as ``550.163.01`` comes before a minimum."""
    return version_numbers(version) < version_numbers(minimum)


def version_numbers(version: str) -> tuple[int, ...]:
    """Return the numbers that a version begins with: (1, 36, 2) of ``v1.36.2-rc.1``, or ()."""
    match = _NUMBERS.match(version)
    return tuple(map(int, match[1].split("."))) if match else ()
