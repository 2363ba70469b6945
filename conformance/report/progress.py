"""Live progress in a terminal: one line per check, one sign per case, in catalogue order."""

from __future__ import annotations

import sys
import textwrap
from contextlib import suppress

import pytest

from conformance.check import Check

_SIGNS = {"passed": ("+", "32"), "failed": ("F", "31"), "skipped": ("-", "33")}
_LEGEND = "one sign per case: + passed, F failed, - not checked (report.html says why)"
_TITLE = 58


class Progress:
    """Prints a check's title when its first case is done, and a sign for every case.

    A terminal may be lost meanwhile: that ends no check, and keeps nothing from being cleaned up.
    """

    def __init__(self) -> None:
        self._current = ""
        self._has_begun = False
        self._colour = sys.stdout.isatty()

    def done(self, check: Check, status: str) -> None:
        """Show one case."""
        line = "" if self._has_begun else f"{_LEGEND}\n"
        self._has_begun = True
        if check.id != self._current:
            title = textwrap.shorten(check.title, _TITLE, placeholder=" …")
            start = "\n  " if self._current else "  "
            line += f"{start}{check.id:<8}{title:<{_TITLE}} "
            self._current = check.id
        sign, colour = _SIGNS[status]
        self._print(f"{line}\033[{colour}m{sign}\033[0m" if self._colour else f"{line}{sign}")

    def end(self) -> None:
        """Close the last line."""
        if self._current:
            self._print("\n")

    def _print(self, text: str) -> None:
        with suppress(OSError):
            print(text, end="", flush=True)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Report what could not be read of the suite."""
        if report.failed:
            print(report.longrepr, file=sys.stderr)
