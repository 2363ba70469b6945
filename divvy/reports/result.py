"""What all checks of a report come to: one word, and how many of each outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

_Checks = Sequence[Mapping[str, Any]]


def statistics(checks: _Checks) -> dict[str, int]:
    """Return how many came out how, and of how many it is open whether they hold."""
    counts = Counter(check["status"] for check in checks)
    is_open = (check["level"] == "MUST" and check.get("missed") == "not made" for check in checks)
    return {
        **{status: counts[status] for status in ("passed", "failed", "skipped")},
        "requiredNotChecked": sum(is_open),
    }


def result(checks: _Checks, *, strict: bool, only: Sequence[str], mode: str) -> str:
    """Return the word for a run of options ``only``; with ``strict`` every failure is one of it."""
    failed = [check for check in checks if check["status"] == "failed"]
    if any(strict or check["level"] == "MUST" for check in failed):
        return "failure"
    if failed:
        return "warning"
    if not any(check["status"] == "passed" for check in checks):
        return "nothing checked"
    missed = any(check.get("missed") in ("option", "not made") for check in checks)
    return "partial" if missed or only or mode != "hardware" else "success"
