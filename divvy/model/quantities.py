"""Durations and memory sizes as stack files write them."""

import re

_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_MIB = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_MEMORY = re.compile(r"(\d+)(Mi|Gi|Ti)")

DURATION_PATTERN = r"^(\d+(\.\d+)?(ms|s|m|h))+$"
MEMORY_PATTERN = r"^(auto|\d+(Mi|Gi|Ti))$"


def parse_duration(value: object) -> float:
    """Return the seconds of a duration such as ``60s`` or ``1m30s``."""
    if isinstance(value, float):
        return value
    if not isinstance(value, str) or not re.match(DURATION_PATTERN, value):
        raise ValueError(f"is {value!r}; a duration such as 30s, 10m or 1m30s is expected")
    parts = _DURATION_PART.findall(value)
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)


def memory_mib(quantity: str) -> int:
    """Return the MiB of a memory size such as ``6Gi`` or ``512Mi``."""
    match = _MEMORY.fullmatch(quantity)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"is {quantity!r}; a size such as 6Gi or 512Mi, or auto, is expected")
    return int(match[1]) * _MIB[match[2]]
