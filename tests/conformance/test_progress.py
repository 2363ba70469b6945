"""The lines of a run, also of one whose terminal is gone."""

import pytest

from conformance.catalogue import CATALOGUE
from conformance.report.progress import Progress


class Lost:
    """The output of a program whose terminal was closed."""

    def isatty(self) -> bool:
        return False

    def write(self, _: str) -> int:
        raise OSError(5, "Input/output error")

    def flush(self) -> None:
        raise OSError(5, "Input/output error")


def test_shows_a_line_for_each_check_and_a_sign_for_each_case(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress = Progress()
    for identity, status in (("PLUG-01", "passed"), ("PLUG-01", "failed"), ("ISO-02", "skipped")):
        progress.done(CATALOGUE[identity], status)
    progress.end()
    legend, first, second = capsys.readouterr().out.splitlines()
    assert legend == "one sign per case: + passed, F failed, - not checked (report.html says why)"
    assert first.startswith("  PLUG-01 nothing is advertised")
    assert (first[-2:], second[:8], second[-2:]) == ("+F", "  ISO-02", " -")


def test_goes_on_when_its_terminal_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that ends by an error here removes none of its pods."""
    monkeypatch.setattr("sys.stdout", Lost())
    progress = Progress()
    progress.done(CATALOGUE["PLUG-01"], "passed")
    progress.end()
