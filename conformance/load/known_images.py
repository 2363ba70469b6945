"""Reads the output of the field's well-known images: their exit codes do not tell everything."""

from __future__ import annotations

import re
from dataclasses import dataclass

# The well-known gpu-burn holds three matrices of 256 MiB at least and waits 30 s after its end.
BURN_ARGUMENTS = ("-m", "1024", "-stts", "2", "10")
BURN_MIB = 1024
_SPOILT = ("(DIED!)", "(WARNING!)", "No clients are alive", "Couldn't init a GPU test")


@dataclass(frozen=True)
class Verdict:
    """Whether a workload passed, and the words of its output that say so."""

    passed: bool
    words: str


def vector_add(code: int | None, log: str) -> Verdict:
    """Read what vectorAdd, or its variant on the driver API, printed."""
    good = re.search(r"^(Test PASSED|Result = PASS)\s*$", log, re.MULTILINE)
    bad = re.search(r"^.*(Failed to |Result = FAIL|verification failed|insufficient).*$", log, re.M)
    lines = bad or good
    return Verdict(
        code == 0 and good is not None and bad is None,
        f"exit code {code}, {lines.group().strip() if lines else 'no result'}",
    )


def gpu_burn(code: int | None, log: str) -> Verdict:
    """Read what gpu-burn printed; a GPU may be FAULTY although it ends with 0."""
    lines = log.replace("\r", "\n")
    results = re.findall(r"^\s*GPU (\d+): (OK|FAULTY)\s*$", lines, re.MULTILINE)
    counted = " ".join(re.findall(r"errors: (.*?)(?:temps:|$)", lines, re.MULTILINE))
    errors = [int(number_of_errors) for number_of_errors in re.findall(r"\d+", counted)]
    spoilt = [word for word in _SPOILT if word in lines]
    words = [f"GPU {number}: {result}" for number, result in results] or ["no GPU tested"]
    words += [f"errors: {max(errors)}"] if errors else []
    passed = (
        code == 0
        and bool(results)
        and all(result == "OK" for _, result in results)
        and not any(errors)
        and not spoilt
    )
    return Verdict(passed, ", ".join([f"exit code {code}", *words, *spoilt]))
