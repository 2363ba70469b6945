"""Durations and memory sizes as stack files write them, and counts as Kubernetes does."""

import re
from fractions import Fraction

from divvy.model.problems import value_text

_MAX_SECONDS = 365 * 24 * 3600.0
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)")
_MIB = {"Mi": 1, "Gi": 1024, "Ti": 1024 * 1024}
_MEMORY = re.compile(r"(\d+)(Mi|Gi|Ti)")
# k8s.io/apimachinery/pkg/api/resource: a number and a suffix, both may be signed.
_QUANTITY = re.compile(
    r"([+-]?(?:\d{1,64}(?:\.\d{0,64})?|\.\d{1,64}))([num]|[kMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,2})?",
    re.ASCII,
)
_DECIMAL, _BINARY, _SMALL = " kMGTPE", " KMGTPE", " mun"

DURATION_PATTERN = r"^(\d+(\.\d+)?(ms|s|m|h))+$"
MEMORY_PATTERN = r"^(auto|\d+(Mi|Gi|Ti))$"


def parse_duration(value: object) -> float:
    """Return the seconds of a duration such as ``60s`` or ``1m30s``."""
    if not isinstance(value, str) or not re.match(DURATION_PATTERN, value):
        raise ValueError(
            f"is {value_text(value)}; a duration such as 30s, 10m or 1m30s is expected"
        )
    parts = _DURATION_PART.findall(value)
    seconds = sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
    if not 0 < seconds <= _MAX_SECONDS:
        raise ValueError(
            f"is {value_text(value)}; more than 0 and at most a year (8760h) is expected"
        )
    return seconds


def memory_mib(quantity: str, otherwise: str = "") -> int:
    """Return the MiB of a memory size such as ``6Gi`` or ``512Mi``.

    ``otherwise`` is the word that the key takes instead of a size, for the error.
    """
    match = _MEMORY.fullmatch(quantity)
    if match is None or int(match[1]) == 0:
        word = f", or {otherwise}," if otherwise else ""
        raise ValueError(
            f"is {value_text(quantity)}; a size such as 6Gi or 512Mi{word} is expected"
        )
    return int(match[1]) * _MIB[match[2]]


def parse_count(quantity: object) -> int | None:
    """Return the number of things that a Kubernetes quantity is (``8``, ``1k``), else None.

    The API server writes quantities in their shortest form: 1000 replicas are ``1k``.
    """
    try:
        count = parse_quantity(quantity)
    except ValueError:
        return None
    return int(count) if count.denominator == 1 and count >= 0 else None


def parse_quantity(quantity: object) -> Fraction:
    """Return a Kubernetes quantity (``3000Mi``, ``1500m``, ``5n``, ``-1e3``) as a number.

    Raises ValueError if it is none.
    """
    match = _QUANTITY.fullmatch(str(quantity))
    if match is None:
        raise ValueError(f"is {value_text(quantity)}; a quantity such as 3000Mi is expected")
    return Fraction(match[1]) * _factor(match[2] or "")


def mib_quantity(mib: int) -> str:
    """Write MiB as the API server writes them back: in the largest unit that has no fraction."""
    for unit in ("Mi", "Gi", "Ti"):
        if mib % 1024 or not mib:
            return f"{mib}{unit}"
        mib //= 1024
    return f"{mib}Pi"


def _factor(suffix: str) -> Fraction:
    if suffix in ("m", "u", "n"):
        return Fraction(1, 1000 ** _SMALL.index(suffix))
    if suffix[-1:].isdigit():
        return Fraction(10) ** int(suffix[1:])
    if suffix.endswith("i"):
        return Fraction(1024 ** _BINARY.index(suffix[0]))
    return Fraction(1000 ** _DECIMAL.index(suffix or " "))
