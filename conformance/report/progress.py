"""Live progress in a terminal: one line per check, one sign per case, in catalogue order."""

from __future__ import annotations

import sys
import textwrap

import pytest

from conformance.catalogue import Check

_SIGNS = {"passed": ("+", "32"), "failed": ("F", "31"), "skipped": ("-", "33")}
_TITLE = 58


class Progress:
    """Prints a check's title when its first case is done, and a sign for every case."""

    def __init__(self) -> None:
        self._current = ""
        self._colour = sys.stdout.isatty()

    def done(self, check: Check, status: str) -> None:
        """Show one case."""
        if check.id != self._current:
            if self._current:
                print()
            self._current = check.id
            title = textwrap.shorten(check.title, _TITLE, placeholder=" …")
            print(f"  {check.id:<8}{title:<{_TITLE}} ", end="")
        sign, colour = _SIGNS[status]
        print(f"\033[{colour}m{sign}\033[0m" if self._colour else sign, end="", flush=True)

    def end(self) -> None:
        """Close the last line."""
        if self._current:
            print(flush=True)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Say what could not be read of the suite."""
        if report.failed:
            print(report.longrepr, file=sys.stderr)
